"""Imports go one way: native <- transferqueue <- workers <- controller, and Ray only where it belongs."""

from __future__ import annotations

import re

import pytest

from tests.architecture.source_tree import ROOT, Import, imports, native_files, python_files

# Lowest first. A module may import from its own layer and from those before it.
DATA_PLANE_LAYERS = (
    ("_native", "errors", "printable", "refusals"),
    (
        "batch_types",
        "cluster_config",
        "config",
        "config_page",
        "config_sources",
        "config_values",
        "logs",
        "own_programs",
        "lease_report",
        "partition_limits",
        "read_report",
        "session_stats",
        "sizes",
        "tag_maps",
        "metadata",
        "text_table",
        "waiting",
    ),
    ("codec", "samplers", "storage", "nodes"),
    ("service", "allocation", "claims", "checkpoint", "metrics"),
    ("client", "aio", "session_notes"),
    ("session", "process_state", "cluster", "node_service"),
    ("kv", "calls", "conversions", "streaming", "microbench", "dropin", "cli", "config_report", "endpoints"),
    ("compat",),
)
# The lists of names for programs that import them from elsewhere: the one part of the package's own folder that knows
# the layers above it. No module of ours may import them.
NAMES_FOR_PROGRAMS = "transferqueue.compat.single_controller"
RAY_MODULES = (
    "transferqueue.controller",
    "transferqueue.workers.ray_runtime",
    "transferqueue.cluster",
    # The peer of `tq bench`: a program of its own that measures Ray, imported by nothing of the package.
    "transferqueue.microbench.ray_peer",
    # The compatible face is for programs on Ray, which find the system by the name of an actor.
    "transferqueue.compat.controller_actor",
    "transferqueue.compat.ray_system",
)


def _layer(module: str) -> str:
    for name in ("controller", "workers"):
        if module == f"transferqueue.{name}" or module.startswith(f"transferqueue.{name}."):
            return name
    return "transferqueue" if module.split(".")[0] == "transferqueue" else "outside"


def _is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _shown(edge: Import) -> str:
    return f"{edge.importer}:{edge.line} imports {edge.imported}"


def test_there_is_something_to_check() -> None:
    assert len(python_files()) > 20
    assert len(native_files()) > 20
    assert len(imports()) > 100


@pytest.mark.parametrize(
    ("layer", "forbidden"), [("transferqueue", {"workers", "controller"}), ("workers", {"controller"})]
)
def test_no_import_points_up(layer: str, forbidden: set[str]) -> None:
    wrong = [
        _shown(edge)
        for edge in imports()
        if _layer(edge.importer) == layer
        and _layer(edge.imported) in forbidden
        and not _is_below(edge.importer, NAMES_FOR_PROGRAMS)
    ]
    assert not wrong


def test_nothing_imports_the_lists_of_names_for_programs() -> None:
    assert not [_shown(edge) for edge in imports() if _is_below(edge.imported, NAMES_FOR_PROGRAMS)]


def test_ray_is_imported_where_it_belongs() -> None:
    wrong = [
        _shown(edge)
        for edge in imports()
        if edge.imported.split(".")[0] == "ray"
        and not any(edge.importer == name or edge.importer.startswith(name + ".") for name in RAY_MODULES)
    ]
    assert not wrong


def test_nothing_imports_the_ray_peer_of_the_benchmark() -> None:
    assert not [_shown(edge) for edge in imports() if edge.imported.startswith("transferqueue.microbench.ray_peer")]


def _data_plane_rank(module: str) -> int | None:
    parts = module.split(".")
    if _layer(module) != "transferqueue" or len(parts) < 2:
        return None
    for rank, names in enumerate(DATA_PLANE_LAYERS):
        if parts[1] in names:
            return rank
    return None


def test_every_module_of_the_data_plane_has_a_layer() -> None:
    modules = {edge.importer for edge in imports() if _layer(edge.importer) == "transferqueue"} - {"transferqueue"}
    assert not sorted(module for module in modules if _data_plane_rank(module) is None)


def test_the_data_plane_has_layers() -> None:
    wrong = []
    for edge in imports():
        lower, upper = _data_plane_rank(edge.importer), _data_plane_rank(edge.imported)
        if lower is not None and upper is not None and upper > lower and not edge.type_checking_only:
            wrong.append(_shown(edge))
    assert not wrong


INCLUDE = re.compile(r'#include\s+["<]([^">]+)[">]')


def _native_layer(include_or_path: str) -> str | None:
    match = re.match(r"(?:native/)?(core/(?:memory|index|store)|core|bind)/", include_or_path)
    return match.group(1) if match else None


def test_native_core_has_layers_and_no_python() -> None:
    allowed = {
        "core": {"core"},
        "core/memory": {"core", "core/memory"},
        "core/index": {"core", "core/index"},
        "core/store": {"core", "core/memory", "core/index", "core/store"},
        "bind": {"core", "core/memory", "core/index", "core/store", "bind"},
    }
    wrong = []
    for path in native_files():
        name = str(path.relative_to(ROOT))
        layer = _native_layer(name)
        for include in INCLUDE.findall(path.read_text()):
            target = _native_layer(include)
            if layer is None:
                wrong.append(f"{name} is in no layer")
                continue
            points_up = target is not None and target not in allowed[layer]
            names_python = layer != "bind" and include.startswith(("Python.h", "nanobind", "pybind"))
            if points_up or names_python:
                wrong.append(f"{name} includes {include}")
    assert not wrong
