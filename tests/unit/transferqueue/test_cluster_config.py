"""The keys ``cluster.*``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transferqueue.cluster_config import port_range
from transferqueue.config import build_config


@pytest.mark.parametrize(
    ("given", "ports"),
    [
        (None, range(1)),
        ("", range(1)),
        (0, range(1)),
        ("0", range(1)),
        (42000, range(42000, 42001)),
        ("42000-42010", range(42000, 42011)),
        ("65535-65535", range(65535, 65536)),
    ],
)
def test_ports_are_one_or_a_range(given: Any, ports: range) -> None:
    config = build_config({"cluster.port": given}).cluster
    assert port_range(config.port) == ports
    assert build_config({"cluster.port": config.port}).cluster == config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("port", "65536"),
        ("port", "42010-42000"),
        ("port", "0-5"),
        ("port", "-1"),
        ("port", "http"),
        ("port", True),
        ("host", 5),
        ("resource", ["gpu"]),
        ("tls_cert", "/nowhere/cert.pem"),
        ("streams", 0),
        ("streams", 65),
        ("chunk_bytes", "2GiB"),
        ("chunk_bytes", 1),
        ("lost_after_s", 0.5),
        ("lost_after_s", "nan"),
        ("call_s", 0),
        ("call_s", "inf"),
        ("replicas", 3),
        ("transport", "pigeon"),
        ("enabled", "perhaps"),
    ],
)
def test_what_is_no_value_is_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"cluster.{key}"):
        build_config({f"cluster.{key}": value})


def test_certificate_and_key_belong_together(tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("cert", "key", "ca")}
    for path in files.values():
        Path(path).touch()
    both = build_config({"cluster.tls_cert": files["cert"], "cluster.tls_key": files["key"]}).cluster
    both.check()
    for given in ({"cluster.tls_cert": files["cert"]}, {"cluster.tls_key": files["key"]}):
        with pytest.raises(ValueError, match="belong together"):
            build_config(given).cluster.check()
    with pytest.raises(ValueError, match=r"without cluster\.tls_cert"):
        build_config({"cluster.tls_ca": files["ca"]}).cluster.check()
    with pytest.raises(ValueError, match=r"without cluster\.tls_cert"):
        build_config({"cluster.tls_verify_clients": True}).cluster.check()
