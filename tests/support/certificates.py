"""Certificates for tests, made with the openssl program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from transferqueue.nodes.tls import TlsFiles


def authority(folder: Path, name: str, address: str = "127.0.0.1") -> TlsFiles:
    """A certificate authority, and a certificate of it for a machine with that address."""
    key, ca, cert = (str(folder / f"{name}.{part}") for part in ("key", "ca", "cert"))
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subject = ("-subj", f"/CN={name}")
    _openssl("req", "-x509", *curve, "-keyout", f"{key}.ca", "-out", ca, "-days", "1", *subject)
    _openssl("req", *curve, "-keyout", key, "-out", f"{cert}.request", *subject)
    names = folder / "names"
    names.write_text(f"subjectAltName=IP:{address},DNS:localhost")
    _openssl(
        *("x509", "-req", "-in", f"{cert}.request", "-CA", ca, "-CAkey", f"{key}.ca", "-CAcreateserial"),
        *("-out", cert, "-days", "1", "-extfile", str(names)),
    )
    os.chmod(key, 0o600)
    return TlsFiles(cert, key, ca)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
