"""The client that fits a session: of one machine, or of several nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transferqueue.client.client import TransferQueueClient
from transferqueue.client.core import Housekeeping
from transferqueue.config import Config
from transferqueue.storage.attachment import Attachment

if TYPE_CHECKING:
    from transferqueue.nodes.cluster_file import ClusterFile


def client_of(attachment: Attachment, config: Config, service: Housekeeping) -> TransferQueueClient:
    """A process's client. What several nodes need is imported for sessions of several nodes only."""
    joined = attachment.cluster
    if joined is None:
        return TransferQueueClient(attachment, config, service)
    from transferqueue.client.cluster_client import ClusterClient
    from transferqueue.nodes.joined import link_of, sources_of

    def read() -> ClusterFile:
        # Gone with the session: what was known of it serves for the error.
        return attachment.cluster_now() or joined

    link = link_of(read)
    return ClusterClient(attachment, config, service, link, sources_of(link, joined))
