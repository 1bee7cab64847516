"""The node-sessions of this machine: found by the cluster's name in shared memory, without asking anybody."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass

from transferqueue.errors import SessionNotFoundError, TransferQueueError, name_some
from transferqueue.nodes.cluster_file import ClusterFile, read_cluster_file
from transferqueue.storage.names import SHM_DIRECTORY, SessionPaths, check_session_name
from transferqueue.storage.session_dir import is_in_use, owned_by_us

_ORDINAL = re.compile(r"\.n([0-9]{1,4})")


@dataclass(frozen=True)
class LocalSession:
    """One node's part of a cluster's session, on this machine."""

    paths: SessionPaths
    file: ClusterFile

    @property
    def in_use(self) -> bool:
        """Whether any process holds it; a removal that is under way counts."""
        return is_in_use(self.paths)


def local_sessions(cluster: str, *, node_id: str | None = None) -> list[LocalSession]:
    """Those of a cluster, by ordinal; what is damaged, half made or another user's is left out.

    Args:
        cluster: the session's name, as users say it.
        node_id: only of this node: several may be on one machine.
    """
    stem = SessionPaths.of(check_session_name(cluster)).stem
    found = []
    for entry in os.listdir(SHM_DIRECTORY):
        if not entry.startswith(stem) or _ORDINAL.fullmatch(entry[len(stem) :]) is None:
            continue
        paths = SessionPaths.of(cluster + entry[len(stem) :])
        with contextlib.suppress(TransferQueueError, OSError):
            if not owned_by_us(paths.directory) or not os.path.exists(paths.description):
                continue
            file = read_cluster_file(paths)
            if file is not None and file.cluster == cluster and node_id in (None, file.node_id):
                found.append(LocalSession(paths, file))
    return sorted(found, key=lambda session: session.file.ordinal)


def part_here(found: list[LocalSession]) -> LocalSession | None:
    """Of a cluster's sessions on this machine the one that lives; None: none does.

    Raises:
        SessionNotFoundError: several live, and nothing says which is meant.
    """
    living = [session for session in found if session.in_use]
    if len(living) > 1:
        cluster = living[0].file.cluster
        raise SessionNotFoundError(
            f"{len(living)} nodes of session {cluster!r} are on this machine "
            f"({name_some(session.paths.name for session in living)}): say which one this process belongs to, by "
            "attaching to it under that name",
            session=cluster,
        )
    return living[0] if living else None


def clusters_here() -> list[str]:
    """Names of the clusters' sessions of which a node is on this machine."""
    prefix = f"tq-{os.getuid()}-"
    stems = {
        entry[len(prefix) : match.start()]
        for entry in os.listdir(SHM_DIRECTORY)
        if entry.startswith(prefix) and (match := re.search(r"\.n[0-9]{1,4}$", entry))
    }
    return sorted(stem for stem in stems if local_sessions(stem))
