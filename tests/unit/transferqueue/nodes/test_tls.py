"""Certificates: who is trusted, who is not, and which key files are refused."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.certificates import authority
from tests.unit.native.native_session import exit_status, fork
from tests.unit.transferqueue.nodes.serving import HOST, TOKEN, client_of, serving
from transferqueue.errors import NodeUnreachableError, TransferQueueError, UntrustedFileError
from transferqueue.nodes.rpc_client import RpcClient
from transferqueue.nodes.tls import TlsFiles

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl"),
]


def soon(seconds: float) -> float:
    return time.monotonic() + seconds


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[TlsFiles, TlsFiles]:
    folder = tmp_path_factory.mktemp("certificates")
    return authority(folder, "ours"), authority(folder, "theirs")


def test_calls_are_encrypted_and_servers_known(files: tuple[TlsFiles, TlsFiles]) -> None:
    ours, theirs = files
    with serving({"m": lambda call: 1}, tls=ours) as server:
        client = client_of(server, tls=ours)
        assert client.call("m", {}, until_s=soon(20)) == 1
        assert exit_status(fork(lambda: client.call("m", {}, until_s=soon(30)))) == 0
        with pytest.raises(NodeUnreachableError):
            client_of(server, tls=theirs).call("m", {}, until_s=soon(0.5))
        with pytest.raises(NodeUnreachableError):
            client_of(server).call("m", {}, until_s=soon(0.5))
    with serving({"m": lambda call: 1}) as plain, pytest.raises(NodeUnreachableError):
        client_of(plain, tls=ours).call("m", {}, until_s=soon(0.5))


def test_servers_can_ask_for_certificates(files: tuple[TlsFiles, TlsFiles]) -> None:
    ours, theirs = (replace(each, verify_clients=True) for each in files)
    with serving({"m": lambda call: 1}, tls=ours) as server:
        assert client_of(server, tls=ours).call("m", {}, until_s=soon(20)) == 1
        stranger = replace(ours, client_cert=theirs.cert, client_key=theirs.key)
        for tls in (stranger, replace(ours, verify_clients=False)):
            with pytest.raises(TransferQueueError):
                client_of(server, tls=tls).call("m", {}, until_s=soon(0.5))


@pytest.mark.parametrize(
    ("server", "client", "meaning"),
    [
        ("ours", None, r"Socket closed.*A server with TLS closes .* it wants cluster\.tls_cert and .* here, too"),
        (None, "ours", r"wrong version number.*speaks no TLS: it wants cluster\.tls_cert .* or none of them here"),
        ("ours", "theirs", r"certificate is not of the authority in cluster\.tls_ca here"),
        ("of another machine", "of another machine", r"does not name that address"),
        ("asks", "ours", r"A server with cluster\.tls_verify_clients closes"),
        ("asks", None, r"it wants cluster\.tls_cert"),
    ],
    ids=["plain-client", "plain-server", "another-authority", "another-address", "no-certificate", "plain-and-asked"],
)
def test_what_does_not_fit_is_said(
    files: tuple[TlsFiles, TlsFiles], tmp_path: Path, server: str | None, client: str | None, meaning: str
) -> None:
    ours, theirs = files
    known = {None: None, "ours": ours, "theirs": theirs, "asks": replace(ours, verify_clients=True)}
    if server == "of another machine":
        known[server] = authority(tmp_path, "another", "192.0.2.7")
    with serving({"m": lambda call: 1}, tls=known[server]) as served:
        called = client_of(served, tls=known[client])
        with pytest.raises(NodeUnreachableError, match=meaning):
            called.call("m", {}, until_s=soon(0.5))
        called.close()


def test_nothing_is_said_of_certificates_where_nobody_is() -> None:
    with serving() as served:
        port = served.port
    with pytest.raises(NodeUnreachableError) as caught:
        RpcClient(HOST, port, token=TOKEN).call("m", {}, until_s=soon(0.3))
    assert "tls" not in str(caught.value)


def test_files_that_cannot_be_trusted_are_refused(files: tuple[TlsFiles, TlsFiles], tmp_path: Path) -> None:
    ours, _ = files
    shutil.copy(ours.key, tmp_path / "open.key")
    os.chmod(tmp_path / "open.key", 0o644)
    (tmp_path / "empty").touch()
    with pytest.raises(UntrustedFileError, match="chmod 600"):
        serving(tls=replace(ours, key=str(tmp_path / "open.key"))).__enter__()
    with pytest.raises(ValueError, match="no PEM file"):
        serving(tls=replace(ours, cert=str(tmp_path / "empty"))).__enter__()
    with pytest.raises(FileNotFoundError):
        serving(tls=replace(ours, key=str(tmp_path / "missing"))).__enter__()
