"""``python -m examples.dedup [--on object local ray]``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import transferqueue as tq
from examples.dedup.corpus import make_corpus
from examples.dedup.loop import Duplicates, find_duplicates
from examples.dedup.worker import DedupWorker

WAYS = ("object", "local", "ray")


@contextmanager
def started(way: str, ranks: int) -> Iterator[Any]:
    """Something with the methods of `DedupWorker`: all that is different between the three ways."""
    if way == "object":
        yield DedupWorker()
    elif way == "local":
        from transferqueue.controller import LocalWorkerGroup

        with LocalWorkerGroup(DedupWorker, ranks) as group:
            yield group
    else:
        from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

        pool = RayResourcePool([ranks], use_gpu=False, max_colocate_count=1)
        with RayWorkerGroup(pool, RayClassWithInitArgs(DedupWorker)) as group:
            yield group


def run(way: str, ranks: int, texts: list[str], threshold: float) -> tuple[Duplicates, float]:
    """The pairs found that way, and the seconds of the loop, the start of the ranks not counted."""
    with tq.init({"storage.size": "256MiB"}), started(way, ranks) as worker:
        started_s = time.perf_counter()
        found = find_duplicates(worker, tq.get_client(), texts, threshold)
        return found, time.perf_counter() - started_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Finds the duplicates in each way; 0 when all found the same, and nine in ten of the planted ones or more."""
    parser = argparse.ArgumentParser(prog="python -m examples.dedup", description="near-duplicate texts")
    parser.add_argument("--on", nargs="+", choices=WAYS, default=list(WAYS), help="ways to run, one after the other")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--copies", type=int, default=300)
    parser.add_argument("--threshold", type=float, default=0.6)
    options = parser.parse_args(arguments)
    corpus = make_corpus(options.documents, copies=options.copies)
    print(f"{options.documents} texts, of which {options.copies} are edited copies of others")
    if "ray" in options.on:
        from examples.common.cluster import start_ray

        start_ray(options.ranks)
    results = []
    for way in options.on:
        found, seconds = run(way, options.ranks, corpus.texts, options.threshold)
        results.append(found)
        hits = len(found.found & corpus.planted)
        print(
            f"{way:7s} {len(found.similarity)} pairs compared, {len(found.found)} alike: {hits} of the "
            f"{len(corpus.planted)} planted, {len(found.found - corpus.planted)} others; {seconds:.2f} s"
        )
    if "ray" in options.on:
        import ray

        ray.shutdown()
    same = all(result == results[0] for result in results)
    print("every way found the same pairs, with the same similarities" if same else "THE WAYS DIFFER")
    return 0 if same and hits >= 0.9 * len(corpus.planted) else 1


if __name__ == "__main__":
    sys.exit(main())
