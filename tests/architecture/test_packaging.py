"""Three folders of the checkout are one package when installed: in a wheel, and in place."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import transferqueue.controller
import transferqueue.workers

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "transferqueue": "transferqueue",
    "controller": "transferqueue/controller",
    "workers": "transferqueue/workers",
}


def source_files() -> set[str]:
    """Where the wheel must have each Python file, stub, marker and data file of the three folders."""
    return {
        f"{target}/{path.relative_to(ROOT / folder)}"
        for folder, target in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".pyi", ".yaml", ".json", ".egg-info") or path.name == "py.typed"
    }


def test_a_wheel_holds_every_file_in_one_namespace(tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core")
    # Without CMake: what is checked is the mapping of folders, and the native module is compiled by the installation.
    settings = {"wheel.cmake": "false", "build-dir": str(tmp_path / "build")}
    code = f"from scikit_build_core.build import build_wheel; build_wheel({str(tmp_path)!r}, {settings!r})"
    built = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == source_files()


@pytest.mark.skipif(
    not Path(transferqueue.__file__).is_relative_to(ROOT / "transferqueue"), reason="not installed in place"
)
@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_an_installation_in_place_finds_files_made_later(folder: str) -> None:
    package = {
        "transferqueue": transferqueue,
        "controller": transferqueue.controller,
        "workers": transferqueue.workers,
    }[folder]
    # Imports search the folder itself, not a list made at installation.
    assert any(os.path.samefile(path, ROOT / folder) for path in package.__path__)


def test_the_native_module_is_part_of_the_package() -> None:
    from transferqueue import _native

    assert _native.__name__ == "transferqueue._native"
    assert Path(str(_native.__file__)).name.startswith("_native.")
