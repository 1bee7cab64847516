"""Where this process's session can be watched."""

from __future__ import annotations

from transferqueue.errors import TransferQueueError
from transferqueue.metrics.endpoint import read_address
from transferqueue.session import current_session


def get_metrics_endpoint() -> str | None:
    """``host:port`` at which the session's service serves Prometheus metrics (under ``/metrics``); ``[host]:port`` for
    IPv6. From any process of the session; one that has none yet joins as every call does.

    Returns:
        None: there is no session, ``metrics.port`` and ``metrics.enabled`` are not set, or the service could not serve
        them and said why. Never raises.
    """
    try:
        session = current_session()
        # The address of a service that was killed is nobody's: here it is taken over, or somebody else has done it.
        session.service.start()
        return None if session.closed else read_address(session.attachment.paths)
    except (TransferQueueError, OSError, ValueError):
        return None
