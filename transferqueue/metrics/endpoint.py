"""The HTTP endpoint of a session's metrics, and the file in the session directory that says where it is.

Bound first, then published: an address that can be read answers. The file belongs to the holder of the session's
service lock, who withdraws it; of a holder that was killed it stays, and the next one removes it before it binds.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from typing import TYPE_CHECKING

from transferqueue import __version__
from transferqueue.config import MetricsConfig
from transferqueue.logs import get_logger
from transferqueue.nodes.replica_figures import read_figures
from transferqueue.storage.names import SessionPaths
from transferqueue.storage.private_files import read_private, write_private

if TYPE_CHECKING:
    from transferqueue._native import Store
    from transferqueue.metrics.server import MetricsServer

_log = get_logger("metrics")


class MetricsEndpoint:
    """Of one service. Nothing here raises: a session works without metrics, and says once why it has none."""

    def __init__(self, paths: SessionPaths, store: Store, config: MetricsConfig) -> None:
        self._paths = paths
        self._store = store
        self._config = config
        self._server: MetricsServer | None = None

    def start(self) -> None:
        """Serves and publishes, if the configuration wants it. By the holder of the service lock."""
        self._withdraw()  # of one that was killed
        if not self._config.wanted:
            return
        try:
            from transferqueue.metrics.server import MetricsServer

            server = MetricsServer(
                self._store,
                session=self._paths.name,
                version=__version__,
                host=self._config.host,
                port=self._config.port or 0,
                replicas=lambda: read_figures(self._paths),
            )
        except ImportError as error:
            self._say(f"{error}; they need prometheus_client: pip install 'transferqueue-shm[metrics]'")
            return
        except OSError as error:
            self._say(
                f"{self._config.host} port {self._config.port or 0}: {error.strerror or error}; choose another "
                "metrics.port (0: one that is free) or metrics.host"
            )
            return
        threading.Thread(target=server.serve, name="transferqueue-metrics", daemon=True).start()
        self._server = server
        try:
            self._publish(server.address)
        except OSError as error:
            self._say(f"the session directory does not take the address: {error}")

    def stop(self) -> None:
        """Withdraws the address and closes the port. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            self._withdraw()
            server.close()

    def continue_in_child(self) -> None:
        """After a fork: the thread stayed in the parent, whose port the inherited socket would keep open."""
        server, self._server = self._server, None
        if server is not None:
            server.close_inherited()

    def _publish(self, address: str) -> None:
        write_private(self._paths.metrics_endpoint, json.dumps({"endpoint": address, "pid": os.getpid()}))

    def _withdraw(self) -> None:
        with contextlib.suppress(OSError):  # there is none, or the session is gone
            os.unlink(self._paths.metrics_endpoint)

    def _say(self, why: str) -> None:
        _log.warning("session %r: metrics are not served: %s", self._paths.name, why)


def read_address(paths: SessionPaths) -> str | None:
    """``host:port`` as published by the session's service; None when it publishes none."""
    try:
        address = json.loads(read_private(paths.metrics_endpoint))["endpoint"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return address if isinstance(address, str) else None
