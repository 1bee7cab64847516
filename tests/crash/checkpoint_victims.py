"""Processes that die while they save or load a checkpoint."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection

import transferqueue as tq
from tests.crash.victims import Arm
from transferqueue import TransferQueueClient


def save(client: TransferQueueClient, arm: Arm, directory: str, metadata: object) -> None:
    client._store.stats()
    arm()
    client.save_checkpoint(directory, metadata=metadata)


def load(client: TransferQueueClient, arm: Arm, directory: str) -> None:
    arm()
    client.load_checkpoint(directory)


def save_until_step(
    pipe: Connection, session: str, directory: str, metadata: object, step: int, exchange: bool
) -> None:
    """Dies right before its `step`-th look at or change of a name beside or in `directory`; says "through" when there
    are fewer."""
    from transferqueue.checkpoint import directories, manifest

    tq.init(session=session)
    client = tq.get_client()
    client.get_partition_list()
    if exchange:
        swap = directories.exchange

        def audited(*arguments: object) -> bool:
            sys.audit("step.exchange", *arguments)
            done = swap(*arguments)  # type: ignore[arg-type]
            sys.audit("step.exchanged", *arguments)
            return done

        directories.exchange = audited  # type: ignore[assignment]
    else:
        directories.exchange = lambda *_: False  # type: ignore[assignment]
    left = step
    files = {manifest.MANIFEST, *manifest.FILES}

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if not event.startswith(("open", "os.", "shutil.", "step.")):
            return
        of_save = (directory, f".{os.path.basename(directory)}.saving")
        # Files are removed by their names in an open directory.
        if not any(any(part in str(argument) for part in of_save) or argument in files for argument in arguments):
            return
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    sys.addaudithook(hook)
    client.save_checkpoint(directory, metadata=metadata)
    pipe.send("through")
    tq.close()
