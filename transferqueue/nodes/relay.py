"""``python -m transferqueue.nodes.relay``: makes the calls of a forked process, see `relay_connection`.

Its standard input is a Unix socket on which it is given one socket for each line of calls. It ends when that closes.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref

from transferqueue.nodes.connection import AttemptError, Connection, DirectConnection, Endpoint
from transferqueue.nodes.relay_connection import receive_frame, send_frame
from transferqueue.nodes.tls import TlsFiles


class Relay:
    """Serves lines; those of one connection of the process share one here."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._connections: weakref.WeakValueDictionary[tuple[Endpoint, str], DirectConnection] = (
            weakref.WeakValueDictionary()
        )

    def serve(self, line: socket.socket) -> None:
        """Until the other side closes it."""
        try:
            host, port, token, tls, name = receive_frame(line)
            endpoint = Endpoint(host, port, token, None if tls is None else TlsFiles(**tls))
            with self._guard:
                connection = self._connections.get((endpoint, name))
                if connection is None:
                    connection = self._connections[endpoint, name] = DirectConnection(endpoint)
            while True:
                kind, timeout_s, body = receive_frame(line)
                if kind == "call":
                    _call(line, connection, timeout_s, body)
                else:
                    _stream(line, connection, timeout_s, body)
        except (EOFError, OSError):
            pass  # the process closed the line, or ended
        finally:
            line.close()


def _call(line: socket.socket, connection: Connection, timeout_s: float, body: bytes) -> None:
    try:
        answer = bytes(connection.call(body, timeout_s))
    except AttemptError as error:
        send_frame(line, ["error", error.kind, str(error)])
        return
    send_frame(line, ["answer", answer])


def _stream(line: socket.socket, connection: Connection, timeout_s: float, ticket: bytes) -> None:
    try:
        for header, data in connection.stream(ticket, timeout_s):
            send_frame(line, ["chunk", bytes(header), memoryview(data)])
    except AttemptError as error:
        send_frame(line, ["error", error.kind, str(error)])
        return
    send_frame(line, ["end"])


def main() -> None:
    control = socket.socket(fileno=os.dup(0))
    relay = Relay()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        for descriptor in descriptors:
            line = socket.socket(fileno=descriptor)
            threading.Thread(target=relay.serve, args=(line,), daemon=True).start()
        if not message:
            os._exit(0)  # threads of the library may be in calls that nobody waits for


if __name__ == "__main__":
    main()
