"""Read by every Python process that has this folder in PYTHONPATH: a worker of Ray asks `tests.support.warm_workers` to
run in its place, and stays as long as that one runs. Every other process goes on as if this were not here."""

from __future__ import annotations

import os
import sys


def _run_elsewhere(address: str) -> None:
    import array
    import json
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(address)
        except OSError:
            return  # nobody is there any more: a process like any other
        what = json.dumps([sys.orig_argv, sys.path, dict(os.environ), os.getcwd()]).encode()
        fds = array.array("i", [0, 1, 2])
        head = len(what).to_bytes(8, "little")
        connection.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        connection.sendall(what)
        status = connection.recv(1)
    os._exit(status[0] if status else 1)


_script = next((name for name in sys.orig_argv[1:] if not name.startswith("-")), "")
if "TQ_TEST_WARM_WORKERS" in os.environ and _script.endswith("/default_worker.py"):
    _run_elsewhere(os.environ["TQ_TEST_WARM_WORKERS"])
