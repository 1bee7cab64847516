"""All that an agent does for other nodes, made from its session alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transferqueue.client.cluster_client import ClusterClient
from transferqueue.node_service.home_service import Handler, HomeService
from transferqueue.nodes.joined import link_of, sources_of
from transferqueue.nodes.transport.payload_streams import PayloadStreams

if TYPE_CHECKING:
    from transferqueue.config import Config
    from transferqueue.nodes.cluster_file import ClusterFile
    from transferqueue.nodes.directory.role import Role
    from transferqueue.storage.attachment import Attachment


class HomeWork:
    """The calls of `HomeService` and the streams of payload. A `NodeWork`."""

    def __init__(self, attachment: Attachment, config: Config) -> None:
        def read() -> ClusterFile:
            file: ClusterFile | None = attachment.cluster_now()
            if file is None:
                raise ValueError(f"session {attachment.paths.name!r} is that of one machine")
            return file

        link, nothing = link_of(read), _NothingToKeep()
        self._client = ClusterClient(attachment, config, nothing, link, sources_of(link, read()))
        bring = self._client._bring_here
        self._home = HomeService(attachment, config, nothing, link, bring, self._client._fetcher)
        self._streams = PayloadStreams(attachment.store)

    def handlers(self) -> Mapping[str, Handler]:
        """Method -> handler."""
        return self._home.handlers()

    def streams(self) -> PayloadStreams:
        """The payload that others may pull."""
        return self._streams

    def facts(self) -> Mapping[str, int | None]:
        """See `Replicas.facts`; none where payload is kept once."""
        replicas = self._home.replicas
        return {} if replicas is None else replicas.facts()

    def roles(self) -> Mapping[str, Role]:
        """See `Replication.roles`; none where payload is kept once."""
        replicas = self._home.replicas
        return {} if replicas is None else replicas.replication.roles()

    def start(self) -> None:
        """Frees from now on what nobody names any more."""
        self._home.start()

    def stop(self) -> None:
        """Idempotent."""
        self._home.stop()
        self._client.close()


class _NothingToKeep:
    """The agent keeps its session by a service of its own, and reads no rows that could be coalesced."""

    def start_if_missing(self) -> None:
        """Nothing."""

    def note_gather(self, partition: str, indexes: Any, fields: Sequence[str], copied_nbytes: int) -> None:
        """Nothing."""
