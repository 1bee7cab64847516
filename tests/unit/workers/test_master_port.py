"""The reserved port of a group."""

from __future__ import annotations

import socket

import torch.distributed as dist

from transferqueue.workers.master_port import MasterPort


def test_the_rendezvous_can_listen_on_a_port_that_is_reserved() -> None:
    reserved = MasterPort()
    try:
        store = dist.TCPStore("127.0.0.1", reserved.port, world_size=1, is_master=True)
        store.set("a", "b")
        assert store.get("a") == b"b"
    finally:
        reserved.release()
        reserved.release()


def test_nobody_else_is_given_the_port() -> None:
    reserved = [MasterPort() for _ in range(32)]
    others = []
    try:
        for _ in range(500):
            other = socket.socket()
            other.bind(("", 0))
            others.append(other)
        ports = {other.getsockname()[1] for other in others} | {port.port for port in reserved}
        assert len(ports) == 532
    finally:
        for item in others:
            item.close()
        for port in reserved:
            port.release()
