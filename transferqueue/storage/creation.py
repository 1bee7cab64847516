"""Making a session: room checked first, everything removed again when a step fails."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping

from transferqueue import _native
from transferqueue.config import Config, format_size, process_keys
from transferqueue.errors import StorageFullError
from transferqueue.logs import get_logger
from transferqueue.samplers.registry import describe_sampler
from transferqueue.storage.attachment import Attachment, remove_quietly
from transferqueue.storage.names import SHM_DIRECTORY, SessionPaths
from transferqueue.storage.origin import write_origin
from transferqueue.storage.private_files import create_private, refuse_untrusted
from transferqueue.storage.segments import create_segments
from transferqueue.storage.session_dir import (
    INDEX_FILES,
    SessionDescription,
    claim_directory,
    host_id,
    pid_namespace,
    write_description,
)
from transferqueue.storage.spill_file import remove_leftover_spill_files

_log = get_logger("storage")
_MIB = 1 << 20
# Control segment, lease files and the used part of the block table: what a session needs beside payload and index.
_OVERHEAD_BYTES = 2 * _MIB


def index_bytes(config: Config) -> int:
    """Bytes reserved for the metadata index, which lies in shared memory also when the payload does not."""
    if config.storage.index_size is not None:
        return max(2 * _MIB, config.storage.index_size)  # the smallest that has room for a clear beside anything else
    _, total = free_bytes(SHM_DIRECTORY)
    return min(256 * _MIB, max(16 * _MIB, min(config.storage.size // 16, total // 4)))


def step_bytes(config: Config) -> int:
    """Bytes by which the backed part of the payload segment grows."""
    return min(config.storage.size, max(32 * _MIB, config.storage.size // 16))


def free_bytes(directory: str) -> tuple[int, int]:
    """(free, total) bytes of the file system at `directory`."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def check_room(config: Config) -> None:
    """Refuses a store that the file system cannot hold, before anything is made.

    Raises:
        StorageFullError: names what is wanted, what is free and what to set.
    """
    overhead = index_bytes(config) + _OVERHEAD_BYTES
    demands = [(SHM_DIRECTORY, overhead + (config.storage.size if config.storage.dir is None else 0))]
    if config.storage.dir is not None:
        demands.append((config.storage.dir, config.storage.size))
    for directory, wanted in demands:
        free, total = free_bytes(directory)
        if wanted > free:
            raise StorageFullError(
                f"storage.size is {format_size(config.storage.size)} and needs {format_size(wanted)} in {directory}, "
                f"which has {format_size(free)} free of {format_size(total)}. Make it larger (containers: --shm-size), "
                "set a smaller storage.size, or set storage.dir to a directory for a file-backed store",
                wanted_bytes=wanted,
                used_bytes=total - free,
                leased_bytes=0,
                free_bytes=free,
                total_bytes=total,
            )


def spill_bytes(config: Config) -> int:
    """Size of the spill file, which takes room on the disk only as it is used; 0 without one."""
    if config.spill.dir is None:
        return 0
    if config.spill.size is not None:
        return max(_MIB, config.spill.size)
    free, _ = free_bytes(config.spill.dir)
    return max(_MIB, min(4 * config.storage.size, free // 4 * 3))


def check_spill(config: Config) -> None:
    """Refuses a spill file that cannot be, before anything is made.

    Raises:
        ValueError: a size without a directory.
        PermissionError: the directory cannot be written to.
        StorageFullError: its file system is smaller than `spill.size`; with both sizes.
    """
    directory = config.spill.dir
    if directory is None:
        if config.spill.size is not None:
            raise ValueError(
                f"spill.size is {format_size(config.spill.size)} but spill.dir names no directory for the file: set "
                "both, or neither"
            )
        return
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(
            errno.EACCES, f"spill.dir {directory} cannot be written to by this user (uid {os.getuid()})", directory
        )
    wanted = spill_bytes(config)
    free, total = free_bytes(directory)
    if wanted > free:
        raise StorageFullError(
            f"spill.size is {format_size(wanted)}, and {directory} has {format_size(free)} free of "
            f"{format_size(total)}; set a smaller spill.size, or another spill.dir",
            resource="spill",
            wanted_bytes=wanted,
            free_bytes=free,
            total_bytes=total,
        )


def warn_about_overcommit() -> None:
    """With ``vm.overcommit_memory=2`` private views are charged in full."""
    try:
        with open("/proc/sys/vm/overcommit_memory", encoding="ascii") as file:
            strict = file.read().strip() == "2"
    except OSError:
        return
    if strict:
        _log.warning(
            "vm.overcommit_memory is 2: copy-on-write views are charged in full, so reads fall back to copies when the "
            "commit limit is reached; set it to 0 or 1, or use read.mode='shared'"
        )


def create_session(
    name: str,
    config: Config,
    sources: Mapping[str, str] | None = None,
    *,
    first_row: int = 0,
    prepare: Callable[[SessionPaths], None] | None = None,
) -> Attachment | None:
    """Makes session `name` and attaches to it; None when the name is taken.

    Args:
        sources: where the values come from.
        first_row: the lowest global index that it gives out: `ordinal << 50` on the nodes of a cluster.
        prepare: writes into the session's directory what has to be there before anybody can join.

    Raises:
        StorageFullError: too little room, with both sizes. UntrustedFileError: a name is not this user's alone.
    """
    paths = SessionPaths.of(name)
    refuse_untrusted(paths.directory, directory=True)
    if os.path.lexists(paths.directory):
        return None
    check_room(config)
    check_spill(config)
    description = describe(name, config)
    lock = claim_directory(paths)
    if lock is None:
        return None
    try:
        write_description(paths, description, hidden=True)
        write_origin(paths, sources or {})
        store = _formatted_store(paths, config, first_row)
    except BaseException as error:
        remove_quietly(paths, lock)
        if (full := _as_full(error, config)) is not None:
            raise full from error
        raise
    try:
        for pattern, settings in config.limits.rules().items():
            store.set_limits(pattern, settings)
        if prepare is not None:
            prepare(paths)
        write_description(paths, description)
    except BaseException as error:
        store.close()
        remove_quietly(paths, lock)
        if (full := _as_full(error, config)) is not None:
            raise full from error
        raise
    warn_about_overcommit()
    return Attachment(paths, description, lock, store)


def _as_full(error: BaseException, config: Config) -> StorageFullError | None:
    """The error of a file system that filled up after `check_room`, with figures; None for another one."""
    full = isinstance(error, StorageFullError) or (
        isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    )
    if not full:
        return None
    free, total = free_bytes(SHM_DIRECTORY)
    wanted = index_bytes(config) + _OVERHEAD_BYTES + (config.storage.size if config.storage.dir is None else 0)
    return StorageFullError(
        f"{SHM_DIRECTORY} filled up while the session was made: {error}. It needs {format_size(wanted)} there, and "
        f"{format_size(free)} of {format_size(total)} are free. Free room, make it larger (containers: --shm-size), or "
        "set a smaller storage.size",
        resource="session",
        wanted_bytes=wanted,
        used_bytes=total - free,
        leased_bytes=0,
        free_bytes=free,
        total_bytes=total,
    )


def _formatted_store(paths: SessionPaths, config: Config, first_row: int) -> _native.Store:
    """Segments and index made and attached to."""
    if config.spill.dir is not None:
        remove_leftover_spill_files(config.spill.dir)
    descriptors = create_segments(paths, config.storage.dir, config.spill.dir)
    try:
        for name in INDEX_FILES:  # LMDB leaves modes to the umask; it takes an empty file for a new one
            os.close(create_private(f"{paths.directory}/index/{name}"))
        _native.Store.format(
            paths.directory,
            descriptors.control,
            descriptors.table,
            descriptors.payload,
            session=paths.name,
            payload_bytes=config.storage.size,
            index_bytes=index_bytes(config),
            step_bytes=step_bytes(config),
            spill_fd=descriptors.spill,
            spill_bytes=spill_bytes(config),
            first_row=first_row,
        )
        return _native.Store(
            paths.directory,
            descriptors.control,
            descriptors.table,
            descriptors.payload,
            session=paths.name,
            spill_fd=descriptors.spill,
        )
    finally:
        descriptors.close()


def describe(name: str, config: Config) -> SessionDescription:
    """What joiners need to know about a session with this configuration."""
    own = set(process_keys()) | {"controller.sampler"}
    return SessionDescription(
        name=name,
        creator_pid=os.getpid(),
        pid_namespace=pid_namespace(),
        host=host_id(),
        layout_version=_native.LAYOUT_VERSION,
        payload_directory=config.storage.dir,
        created_s=time.time(),
        config={key: value for key, value in config.to_flat().items() if key not in own},
        sampler=describe_sampler(config.controller.sampler),
    )
