"""From the surface's configuration to the native one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from omegaconf import DictConfig, OmegaConf

from transferqueue.config import environment_variable, known_keys, read_environment
from transferqueue.logs import get_logger
from transferqueue.samplers.registry import make_sampler
from transferqueue.storage.creation import free_bytes
from transferqueue.storage.names import SHM_DIRECTORY

_log = get_logger("compat")
_LARGEST_DEFAULT_BYTES = 32 << 30
_OUR_BACKENDS = ("SimpleStorage",)


def merged_config(conf: DictConfig | Mapping[str, Any] | None) -> DictConfig:
    """`conf` over the defaults of ``config.yaml``; may hold objects (samplers)."""
    objects: Any = {"allow_objects": True}
    with resources.as_file(resources.files("transferqueue.compat.transfer_queue") / "config.yaml") as path:
        defaults = OmegaConf.load(path)
    given = conf if isinstance(conf, DictConfig) else OmegaConf.create(dict(conf or {}), flags=objects)
    merged = OmegaConf.merge(OmegaConf.create({}, flags=objects), defaults, given)
    assert isinstance(merged, DictConfig)  # narrowing: all three are mappings
    return merged


def native_options(config: DictConfig) -> dict[str, Any]:
    """Dotted native key -> value.

    Raises:
        ValueError: ``Could not find sampler X``, or an unknown key below ``transferqueue``.
        TypeError: ``controller.sampler`` is no sampler.
    """
    _check_sampler(config.controller.sampler)
    options: dict[str, Any] = {
        "controller.sampler": config.controller.sampler,
        "controller.polling_mode": bool(config.controller.polling_mode),
    }
    if config.metrics.enabled and "metrics.port" in known_keys():
        options["metrics.port"] = int(config.metrics.port or 0)
    own = OmegaConf.to_container(config.get("transferqueue") or OmegaConf.create({}), resolve=True)
    options |= _flat(own)
    if "storage.size" not in options and "storage.size" not in read_environment()[1]:
        options["storage.size"] = default_size_bytes()
    _warn_of_what_has_no_effect(config)
    return options


def default_size_bytes() -> int:
    """Half of what shared memory has free, at most 32 GiB: the surface names no size, and memory is taken when used."""
    free, _ = free_bytes(SHM_DIRECTORY)
    return max(1 << 20, min(free // 2, _LARGEST_DEFAULT_BYTES))


def _check_sampler(sampler: Any) -> None:
    """Refused here, by its name, and not after something was started."""
    try:
        make_sampler(sampler)
    except ValueError as error:
        if isinstance(sampler, str):
            raise ValueError(f"Could not find sampler {sampler}: {error}") from error
        raise


def _flat(values: Any, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key not in known_keys():
            flat |= _flat(value, f"{key}.")
        else:
            flat[key] = value
    return flat


def _warn_of_what_has_no_effect(config: DictConfig) -> None:
    backend = config.backend
    if backend.storage_backend not in _OUR_BACKENDS:
        _log.warning("backend.storage_backend=%s: rows go to shared memory all the same", backend.storage_backend)
    if OmegaConf.select(config, "backend.SimpleStorage.ssd_offload.enabled"):
        _log.warning(
            "backend.SimpleStorage.ssd_offload has no effect; for a store on disk set transferqueue.storage.dir, or %s",
            environment_variable("storage.dir"),
        )
