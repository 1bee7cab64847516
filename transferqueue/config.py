"""Configuration: one frozen object, made from a mapping, overrides and the environment.

Precedence, highest first: overrides (dotted keys), the mapping, ``TRANSFERQUEUE_<KEY>`` (``__`` for the dot, upper
case), the default. The environment is read in one function, when a configuration is made, never at import.
"""

from __future__ import annotations

import difflib
import inspect
import os
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from transferqueue.cluster_config import ClusterConfig, as_chunk_bytes
from transferqueue.config_values import READ_MODES as READ_MODES
from transferqueue.config_values import (
    as_anything,
    as_count,
    as_directory,
    as_flag,
    as_host,
    as_log_level,
    as_optional_flag,
    as_optional_port,
    as_optional_size,
    as_read_mode,
    as_seconds,
    as_share,
    as_storage_size,
    config_key,
)
from transferqueue.partition_limits import check_rules, check_setting
from transferqueue.sizes import format_size as format_size
from transferqueue.sizes import parse_size as parse_size

ENVIRONMENT_PREFIX = "TRANSFERQUEUE_"
# Names with the same prefix that are not configuration keys.
SESSION_VARIABLE = "TRANSFERQUEUE_SESSION"


@dataclass(frozen=True)
class StorageConfig:
    """The session's memory. `Config` says what its keys mean."""

    size: int = config_key(as_storage_size, 2 << 30, "payload that the session may hold, on each node that it spans")
    dir: str | None = config_key(
        as_directory, None, "directory for a file-backed payload segment; none: shared memory. Metadata stays there"
    )
    index_size: int | None = config_key(
        as_optional_size, None, "metadata index, reserved at once; none: a sixteenth of storage.size, 16 to 256 MiB"
    )
    populate: int = config_key(
        parse_size, 0, "what the service backs and touches ahead of use, as first touches are slow"
    )
    huge_pages: bool = config_key(
        as_flag, True, "the service turns memory that is in use into huge pages where the kernel has some"
    )


@dataclass(frozen=True)
class SpillConfig:
    """Where blocks go when memory is short. `Config` says what its keys mean."""

    dir: str | None = config_key(
        as_directory,
        None,
        "directory on a disk for a spill file, to which the blocks that were used longest ago move when memory is "
        "short, and from which gets map them; none: nothing spills",
    )
    size: int | None = config_key(
        as_optional_size,
        None,
        "what the spill file may grow to; none: four times storage.size, at most three quarters of what is free there",
    )
    keep_free: int | None = config_key(
        as_optional_size,
        None,
        "memory that the service keeps free by moving blocks ahead of need, so that puts seldom wait for a disk; none: "
        "a sixteenth of storage.size; 0: blocks move only when a put finds no room",
    )


@dataclass(frozen=True)
class ReadConfig:
    """How gets hand out tensors. `Config` says what its keys mean."""

    mode: str = config_key(
        as_read_mode,
        "cow",
        "what gets hand out: 'cow', views that are private when written to; 'shared', read-only views, writing to them "
        "kills the process; 'copy', private memory",
        of_process=True,
    )
    copy_below: int = config_key(
        parse_size, 64 << 10, "fields smaller than this in a batch are copied rather than viewed", of_process=True
    )


@dataclass(frozen=True)
class PutConfig:
    """`Config` says what its keys mean."""

    timeout_s: float | None = config_key(
        as_seconds, 60.0, "seconds that a put waits for room; none: for ever", of_process=True
    )


def _limit(name: str) -> Callable[[Any, str], Any]:
    return lambda value, where: check_setting(name, value, where)


_max_bytes = _limit("max_bytes")


@dataclass(frozen=True)
class LimitsConfig:
    """What every partition may hold. `Config` says what its keys mean."""

    max_bytes: int | None = config_key(
        _max_bytes, None, "payload that the rows of a partition may name; none: no limit"
    )
    max_unconsumed_rows: int | None = config_key(
        _limit("max_unconsumed_rows"), None, "rows of a partition that may wait to be consumed; none: no limit"
    )
    max_version_lag: int | None = config_key(
        _limit("max_version_lag"),
        None,
        "by how much the tag weight_version of a row that waits to be consumed may be below the newest of its "
        "partition; "
        "none: no limit",
    )
    consumers: tuple[str, ...] = config_key(
        _limit("consumers"), (), "a row waits until all these tasks consumed it; (): until any task did"
    )
    when_exceeded: str = config_key(
        _limit("when_exceeded"),
        "wait",
        "a put that exceeds a limit: 'wait', for room up to its timeout; 'shed', the oldest rows that nobody was given "
        "make room; 'raise', LimitExceededError",
    )
    partitions: Any = config_key(  # noqa: RUF009  (a field, made by config_key)
        check_rules, None, 'settings by name or pattern, as {"train*": {"max_bytes": "1GiB"}}; the most specific counts'
    )

    def rules(self) -> dict[str, dict[str, Any]]:
        """Pattern -> settings; empty when nothing is limited."""
        own = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "partitions"}
        said = {name: value for name, value in own.items() if value != getattr(LimitsConfig, name)}
        return ({"*": said} if said else {}) | {
            pattern: {**(said if pattern == "*" else {}), **settings}
            for pattern, settings in (self.partitions or {}).items()
        }


@dataclass(frozen=True)
class ServiceConfig:
    """`Config` says what its keys mean."""

    coalesce_after: int = config_key(
        as_count,
        4,
        "rows that a process gathered so often by the same read (1 MiB and more) become one block in the background, "
        "after which reads of them are views, unless that leaves more than a quarter unused; 0: only in coalesce()",
        of_process=True,
    )
    compact_below: float = config_key(
        as_share,
        0.25,
        "blocks of which rows name less than this share are emptied in the background; at most 0.75; 0: none. A put "
        "that finds no room does so in any case",
        of_process=True,
    )


@dataclass(frozen=True)
class MetricsConfig:
    """`Config` says what its keys mean."""

    enabled: bool | None = config_key(
        as_optional_flag, None, "whether the service serves Prometheus metrics over HTTP; none: if metrics.port is set"
    )
    port: int | None = config_key(
        as_optional_port, None, "TCP port of the metrics; 0 (or none, with metrics.enabled): one that is free"
    )
    host: str = config_key(
        as_host,
        "127.0.0.1",
        "address that the metrics listen on, IPv4 or IPv6; '0.0.0.0' or '::' lets other machines read them",
    )

    @property
    def wanted(self) -> bool:
        """Whether metrics are to be served."""
        return self.port is not None if self.enabled is None else self.enabled


@dataclass(frozen=True)
class ControllerConfig:
    """`Config` says what its keys mean."""

    sampler: Any = config_key(  # noqa: RUF009  (a field, made by config_key)
        as_anything,
        "SequentialSampler",
        "who chooses the rows that a fetch gets: a BaseSampler class, an instance, or the name of a built-in",
    )
    polling_mode: bool = config_key(
        as_flag, False, "a fetch that finds too few rows returns empty metadata at once instead of waiting"
    )


@dataclass(frozen=True)
class LoggingConfig:
    """`Config` says what its keys mean."""

    level: str = config_key(as_log_level, "WARNING", "level of the package's loggers", of_process=True)


@dataclass(frozen=True)
class Config:
    """Everything that can be set, frozen. A key is looked for in the overrides (``init(**{"storage.size": "4GiB"})``),
    then in the mapping (nested or with dotted keys), then in the environment (``TRANSFERQUEUE_STORAGE__SIZE``). Keys of
    the session are its creator's to choose; keys of a process are each process's own.
    """

    storage: StorageConfig = field(default_factory=StorageConfig)
    spill: SpillConfig = field(default_factory=SpillConfig)
    read: ReadConfig = field(default_factory=ReadConfig)
    put: PutConfig = field(default_factory=PutConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    service: ServiceConfig = field(default_factory=ServiceConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    allow_pickle: bool | None = config_key(
        as_optional_flag,
        None,
        "whether values that only pickle keeps are unpickled, which runs code of whoever wrote them; none: those that "
        "processes of this user put into the session on this machine, but none from a file; true: from checkpoints, "
        "too; false: none at all",
        of_process=True,
    )

    @property
    def unpickles_own(self) -> bool:
        """Whether what processes of this user put into the session may be unpickled."""
        return self.allow_pickle is not False

    @property
    def unpickles_files(self) -> bool:
        """Whether pickles of a checkpoint may be loaded where the call does not say."""
        return self.allow_pickle is True

    def to_flat(self) -> dict[str, Any]:
        """Dotted key -> value."""
        return {key: _lookup(self, key) for key in known_keys()}


def _lookup(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config


def _leaves(kind: Any = Config, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in fields(kind):
        group = entry.default_factory if isinstance(entry.default_factory, type) else None
        if group is not None and is_dataclass(group):
            found |= _leaves(group, f"{prefix}{entry.name}.")
        else:
            found[prefix + entry.name] = entry
    return found


def known_keys() -> list[str]:
    """All dotted keys."""
    return list(_leaves())


def process_keys() -> list[str]:
    """Keys that each process may choose for itself; the others belong to the session and its creator."""
    return [key for key, entry in _leaves().items() if entry.metadata["of_process"]]


def key_table() -> list[tuple[str, str, str, str]]:
    """(key, default, "session" or "process", meaning) of every key."""
    return [
        (
            key,
            value_text(key, entry.default),
            "process" if entry.metadata["of_process"] else "session",
            entry.metadata["meaning"],
        )
        for key, entry in _leaves().items()
    ]


def _flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    groups = {key.split(".")[0] for key in known_keys() if "." in key}
    for name, value in config.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and (key in groups or key not in known_keys()):
            flat |= _flatten(value, f"{key}.")
        else:
            flat[key] = value
    return flat


def _refuse_unknown(keys: Mapping[str, Any], source: str) -> None:
    known = known_keys()
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(known)}"
            raise ValueError(f"unknown configuration key {key!r} in {source}{hint}")


def environment_variable(key: str) -> str:
    """The variable that sets `key`: ``storage.size`` -> ``TRANSFERQUEUE_STORAGE__SIZE``."""
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "__")


def read_environment() -> tuple[str | None, dict[str, str]]:
    """The only place where the environment is read: (session to join, dotted key -> text).

    Variables with our prefix that name no key are left alone: other tools may use them.
    """
    values = {key: os.environ[name] for key in known_keys() if (name := environment_variable(key)) in os.environ}
    return os.environ.get(SESSION_VARIABLE) or None, values


def given_values(config: Config | Mapping[str, Any] | None, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`explicit_values`, the environment included."""
    _, values = read_environment()
    return {**values, **explicit_values(config, overrides)}


def explicit_values(config: Config | Mapping[str, Any] | None, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> value of everything that a call was given.

    Raises:
        ValueError: a key that does not exist; the message names the nearest one.
    """
    given: dict[str, Any] = {}
    if isinstance(config, Config):
        given |= config.to_flat()
    elif isinstance(config, Mapping):
        flat = _flatten(config)
        _refuse_unknown(flat, "the configuration")
        given |= flat
    elif config is not None:
        raise TypeError(f"config must be a mapping or a Config, not {type(config).__name__}")
    flat = _flatten(overrides)
    _refuse_unknown(flat, "the overrides")
    return given | flat


def value_text(key: str, value: Any) -> str:
    """A value of `key` for people: ``'cow'``, ``2.0 GiB``, ``none``."""
    if value is None:
        return "none"
    sized = _leaves()[key].metadata["parse"] in (
        parse_size,
        as_storage_size,
        as_optional_size,
        as_chunk_bytes,
        _max_bytes,
    )
    return format_size(value) if sized and isinstance(value, int) else repr(value)


def values_not_taken(explicit: Mapping[str, Any], config: Config) -> dict[str, str]:
    """Key -> ``4.0 GiB (asked for: 8.0 GiB)`` of `explicit` values that `config` does not have; the sampler left out,
    which a joiner's configuration does not know."""
    wanted = build_config(explicit)
    return {
        key: f"{value_text(key, _lookup(config, key))} (asked for: {value_text(key, _lookup(wanted, key))})"
        for key in explicit
        if key != "controller.sampler" and _lookup(wanted, key) != _lookup(config, key)
    }


def build_config(given: Mapping[str, Any], base: Config | None = None) -> Config:
    """A Config of the explicitly `given` values over `base` (defaults when None), each parsed and checked."""
    values = {key: _lookup(base or Config(), key) for key in known_keys()}
    for key, entry in _leaves().items():
        if key in given:
            try:
                values[key] = entry.metadata["parse"](given[key], key)
            except (ValueError, TypeError, OverflowError) as error:
                if key in str(error):
                    raise
                raise ValueError(f"{key}: {given[key]!r} is no value for it: {error}") from error

    def group(kind: Any, prefix: str) -> Any:
        return kind(**{entry.name: values[prefix + entry.name] for entry in fields(kind)})

    return Config(
        storage=group(StorageConfig, "storage."),
        spill=group(SpillConfig, "spill."),
        read=group(ReadConfig, "read."),
        put=group(PutConfig, "put."),
        limits=group(LimitsConfig, "limits."),
        service=group(ServiceConfig, "service."),
        metrics=group(MetricsConfig, "metrics."),
        controller=group(ControllerConfig, "controller."),
        cluster=group(ClusterConfig, "cluster."),
        logging=group(LoggingConfig, "logging."),
        allow_pickle=values["allow_pickle"],
    )


def _keys_for_help() -> str:
    lines = ["", "Keys (default; of the session or of the process):"]
    for key, default, owner, meaning in key_table():
        lines.append(
            textwrap.fill(
                f"{key} ({default}; {owner}): {meaning}", 110, subsequent_indent="    ", break_on_hyphens=False
            )
        )
    return "\n".join(lines)


Config.__doc__ = inspect.cleandoc(Config.__doc__ or "") + "\n" + _keys_for_help()
