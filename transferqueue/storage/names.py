"""What a session is called on disk. See ``docs/internals.md``, "Names on disk"."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass

SHM_DIRECTORY = "/dev/shm"
_MAX_LENGTH = 64
_NODE_ENDING_LENGTH = 6  # ".n4095", the highest ordinal
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SEGMENT_ENDINGS = (".ctl", ".tbl", ".dat")
SPILL_ENDING = ".spill"
_RESERVED_ENDINGS = (*SEGMENT_ENDINGS, SPILL_ENDING)


def check_session_name(name: str) -> str:
    """The name, if it may be one.

    Raises:
        ValueError: empty, over 64 characters, other characters, or an ending that segments use.
    """
    if not isinstance(name, str):
        raise TypeError(f"a session name must be a str, not {type(name).__name__}")
    if _NAME.fullmatch(name) is None or name.endswith(_RESERVED_ENDINGS):
        raise ValueError(
            f"{name[:80]!r} is no session name: use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter "
            f"or digit, not ending in {' or '.join(_RESERVED_ENDINGS)}"
        )
    return name


def node_session_name(cluster: str, ordinal: int) -> str:
    """The session of one node of a cluster's session: ``<cluster>.n<ordinal>``.

    Raises:
        ValueError: `cluster` is no session name, or leaves no room for the ordinal.
    """
    name = f"{check_session_name(cluster)}.n{ordinal}"
    if len(name) > _MAX_LENGTH or len(cluster) > _MAX_LENGTH - _NODE_ENDING_LENGTH:
        raise ValueError(
            f"{cluster!r} is too long for a session of several nodes, whose parts are named after it: use up to "
            f"{_MAX_LENGTH - _NODE_ENDING_LENGTH} characters"
        )
    return name


def new_session_name() -> str:
    """A name that no other session has; the pid in it is for people."""
    return f"p{os.getpid()}-{secrets.token_hex(4)}"


@dataclass(frozen=True)
class SessionPaths:
    """Every name that one session of one user has on this machine."""

    name: str
    uid: int

    @classmethod
    def of(cls, name: str) -> SessionPaths:
        """The names of the calling user's session `name`."""
        return cls(check_session_name(name), os.getuid())

    @property
    def stem(self) -> str:
        return f"tq-{self.uid}-{self.name}"

    @property
    def directory(self) -> str:
        return f"{SHM_DIRECTORY}/{self.stem}"

    @property
    def lock(self) -> str:
        return f"{self.directory}/session.lock"

    @property
    def description(self) -> str:
        return f"{self.directory}/session.json"

    @property
    def hidden_description(self) -> str:
        """Its name while the session is being made or removed, and cannot be joined."""
        return f"{self.directory}/session.json.hidden"

    @property
    def loaded_sessions(self) -> str:
        """See `loaded_sessions.py`; there only after a checkpoint was loaded."""
        return f"{self.directory}/loaded-sessions.json"

    @property
    def service_lock(self) -> str:
        return f"{self.directory}/service.lock"

    @property
    def origin(self) -> str:
        """Where the configuration comes from, and who took the session over."""
        return f"{self.directory}/origin.json"

    @property
    def metrics_endpoint(self) -> str:
        """Where the service says at which address it serves metrics."""
        return f"{self.directory}/metrics.json"

    @property
    def cluster_file(self) -> str:
        """What a session that is one node's part of a larger one says about it; see `nodes/cluster_file.py`."""
        return f"{self.directory}/cluster.json"

    @property
    def replica_figures(self) -> str:
        """What the node's agent says of second copies; see `nodes/replica_figures.py`."""
        return f"{self.directory}/replicas.json"

    @property
    def agent_lock(self) -> str:
        """Held by the node's agent; there only in sessions with a `cluster_file`."""
        return f"{self.directory}/agent.lock"

    @property
    def janitor_lock(self) -> str:
        return f"{self.directory}/janitor.lock"

    @property
    def index_file(self) -> str:
        """Where the metadata index lies."""
        return f"{self.directory}/index/data.mdb"

    def segment(self, ending: str) -> str:
        """POSIX name of a segment: ``/tq-<uid>-<session>.ctl``."""
        return f"/{self.stem}{ending}"

    def payload_file(self, directory: str) -> str:
        """The payload segment's file when `storage.dir` is set."""
        return os.path.join(directory, f"{self.stem}.dat")

    def spill_file(self, directory: str) -> str:
        """The spill file when `spill.dir` is set."""
        return os.path.join(directory, f"{self.stem}{SPILL_ENDING}")

    @property
    def payload_inode(self) -> str:
        """Which file `payload_file` is; there only where there is one."""
        return f"{self.directory}/payload.inode"

    @property
    def spill_inode(self) -> str:
        """Which file that is; there only where there is one."""
        return f"{self.directory}/spill.inode"


def temporary_directory(kind: str) -> str:
    """A fresh path beside the sessions for one being made ("new") or taken away ("gone")."""
    return f"{SHM_DIRECTORY}/.tq-{kind}-{os.getuid()}-{os.getpid()}-{secrets.token_hex(6)}"
