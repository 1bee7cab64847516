"""Programs on Ray that are killed: one that starts the cluster, one that connects to it. They say what they do on
stdout, a line each, and go on when told so on stdin."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import ray

import transferqueue as tq

SMALL = {"storage.size": "4MiB", "storage.index_size": "2MiB"}


def say(*words: object) -> None:
    print(*words, flush=True)


def attached() -> list[str]:
    return [tq.init(**SMALL).name, str(os.getpid())]


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Member:
    """Attached to its node's session, or to one of its own."""

    def __init__(self, session: str | None) -> None:
        self.session = tq.init(session=session, **SMALL)

    def where(self) -> str:
        return self.session.name

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def cluster(temporary: str, own: str, of_actor: str) -> None:
    """Holds a session; its actor holds another one."""
    context = ray.init(
        num_cpus=1, include_dashboard=False, _temp_dir=temporary, object_store_memory=80 << 20, log_to_driver=False
    )
    session = tq.init(session=own, **SMALL)
    member: Any = Member.remote(of_actor)
    say(context.address_info["address"], session.name, ray.get(member.where.remote()))
    time.sleep(3600)


def job(address: str) -> None:
    """Leaves Ray and goes on; comes back; has an actor that restarts again and again."""
    ray.init(address=address, log_to_driver=False)
    first = tq.init(**SMALL)
    say(first.name, ray.get(Member.remote(None).where.remote()))
    sys.stdin.readline()
    ray.shutdown()
    say(len(first.attachment.store.partitions()))
    sys.stdin.readline()
    tq.close()
    ray.init(address=address, log_to_driver=False)
    second = tq.init(**SMALL)
    member: Any = Member.remote(None)
    say(second.name, ray.get(member.where.remote()))
    while True:
        member.die.options(max_task_retries=0).remote()
        time.sleep(0.05)


if __name__ == "__main__":
    {"cluster": cluster, "job": job}[sys.argv[1]](*sys.argv[2:])
