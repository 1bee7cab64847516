"""Certificates."""

from __future__ import annotations

import os
from dataclasses import dataclass

from transferqueue.errors import UntrustedFileError


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
