"""Certificates."""

from __future__ import annotations

import os
from dataclasses import dataclass

from transferqueue.errors import UntrustedFileError

# (whether the client uses TLS, what the library says, what it means). Nothing but the text tells these apart; it is
# that of the gRPC in pyarrow 26.
_CLOSED_ON = ("failed to connect", "Socket closed")
_MISMATCHES = (
    (
        False,
        _CLOSED_ON,
        "A server with TLS closes such connections: it wants cluster.tls_cert and cluster.tls_key here, too",
    ),
    (
        True,
        ("wrong version number",),
        "What answers there speaks no TLS: it wants cluster.tls_cert and cluster.tls_key, too, or none of them here",
    ),
    (True, ("certificate verify failed",), "Its certificate is not of the authority in cluster.tls_ca here"),
    (True, ("not in peer certificate",), "Its certificate, cluster.tls_cert there, does not name that address"),
    (
        True,
        _CLOSED_ON,
        "A server with cluster.tls_verify_clients closes connections of those whose certificate is not of its "
        "cluster.tls_ca",
    ),
)


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files, the same on every node or at least there on every node.

    Attributes:
        cert, key: what the node's server shows. The key must be this user's, and nobody else may read it.
        ca: whom clients trust; the server's certificate must name the node's address.
        client_cert, client_key: what clients show, when servers ask for it; by default `cert` and `key`.
        verify_clients: servers refuse clients without a certificate of `ca`.
    """

    cert: str
    key: str
    ca: str
    client_cert: str | None = None
    client_key: str | None = None
    verify_clients: bool = False

    def read_ca(self) -> bytes:
        return _read(self.ca, "ca")

    def server_pair(self) -> tuple[bytes, bytes]:
        """(certificate chain, private key)."""
        return _read(self.cert, "cert"), _read_key(self.key)

    def client_pair(self) -> tuple[bytes, bytes] | None:
        """What clients show; None when servers do not ask."""
        if not self.verify_clients:
            return None
        return _read(self.client_cert or self.cert, "cert"), _read_key(self.client_key or self.key)


def mismatch(said: str, tls: TlsFiles | None) -> str | None:
    """What is probably wrong with certificates where a connection failed and the library said that; None: nothing.

    Args:
        tls: of the client.
    """
    for client_uses_tls, words, meaning in _MISMATCHES:
        if client_uses_tls == (tls is not None) and all(word in said for word in words):
            return meaning
    return None


def _read(path: str, what: str) -> bytes:
    with open(path, "rb") as file:
        content = file.read(1 << 20)
    if b"-----BEGIN" not in content:
        raise ValueError(f"cluster.tls_{what}: {path!r} is no PEM file")
    return content


def _read_key(path: str) -> bytes:
    content = _read(path, "key")
    found = os.stat(path)
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o077:
        raise UntrustedFileError(
            f"cluster.tls_key: {path!r} can be read by others than this user: chmod 600 it", path=path, uid=found.st_uid
        )
    return content
