"""A GRPO-like run of eight processes on a small store: what is done in a step, and what is sampled."""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Container
from statistics import median
from typing import Any

import transferqueue as tq
from tests.soak import long_run_roles as roles
from tests.soak.flatness import Thirds, Tolerance, table
from tests.support.nursery import Child, Nursery
from transferqueue import BatchMeta

CAST = {"rollout": 2, "advantage": 2, "trainer": 2, "reader": 1, "clearer": 1}
FIELDS = ["id", "responses", "old_log_probs", "uid", "advantages", "rewards"]
ROWS = 256  # a step; 1.7 MB
PASSES = 4
KEPT_SHARE = 0.1  # of a step's rows; the others are cleared after it was trained on, in any order
KEPT_STEPS = 30
# Every block of a coalesced batch (1.7 MB) is kept by a tenth of its rows for 30 steps: 51 MB, if nobody compacted.
# What lives at once is 3 batches and 5 MB.
SIZE = "40MiB"
# What compaction leaves, leases apart (docs/decisions/019-compaction.md): four times what lives, and a slack.
FRAGMENTATION = 4
SLACK_SHARE = 16

# What may differ between the first and the last third of a run that does not leak. Descriptors and mappings: a handful
# that a moment has more. Memory: a leak of one row a step is 3.5 MB between the middles of the first and the last third
# of 1,000 steps. Private memory, of which no pages of the store are a part, is held to less: 1 KB a step shows within
# two hours. (A process keeps the parsed layouts of the blocks that live and about as many again, native/core/index/
# layout.hpp: reached within the warm-up.) Sizes in the store swing with what is not yet compacted. Times: medians of
# medians, on a machine that others use, too.
TOLERANCES = {
    "fds": Tolerance(0, 2),
    "maps": Tolerance(0.1, 16),
    "private": Tolerance(0.02, 3),
    "pss": Tolerance(0.05, 8),
    "rss": Tolerance(0.05, 12),
    "index used, KiB": Tolerance(0.1, 64),
    "store used, MiB": Tolerance(0.25, 4),
    "store free pieces": Tolerance(0.5, 32),
    "put, ms": Tolerance(0.5, 0.2),
    "get, ms": Tolerance(0.5, 0.2),
}


class LongRun:
    """Runs steps, samples figures, says what it found."""

    def __init__(self, session: tq.Session, nursery: Nursery, *, kept_steps: int = KEPT_STEPS, seed: int = 1) -> None:
        self.session = session
        self.client = session.client
        self._chooser = random.Random(seed)
        self.cast: dict[str, list[Child]] = {
            role: [nursery.start(roles.play, session.name) for _ in range(count)] for role, count in CAST.items()
        }
        self.steps = 0
        self._kept_steps = kept_steps
        self.samples: dict[str, list[float]] = defaultdict(list)
        self.fragmented: list[str] = []  # samples in which more was used than compaction may leave
        self._batch: BatchMeta | None = None  # complete, to be trained on
        self._done: BatchMeta | None = None  # trained on, to be cleared but for some rows
        self._kept: list[BatchMeta] = []  # by step
        self.began_s = time.monotonic()

    def step(self) -> None:
        """Rollouts and advantages of one batch, training on the last, clearing of the one before."""
        share = ROWS // CAST["rollout"]
        first = self.steps * ROWS
        rollouts, advantages, trainers = self.cast["rollout"], self.cast["advantage"], self.cast["trainer"]
        (reader,), (clearer,) = self.cast["reader"], self.cast["clearer"]
        for at, child in enumerate(rollouts):
            child.pipe.send(("roll", first + at * share, share, self.steps))
        for child in advantages:
            child.pipe.send(("advise", ROWS // len(advantages)))
        for child in trainers if self._batch is not None else ():
            child.pipe.send(("train", self._batch, PASSES))
        reader.pipe.send(("replay", [meta.select_samples([0, meta.size - 1]) for meta in self._kept[1:]]))
        clearer.pipe.send(("clear", self._to_clear()))

        made, puts = self._answers(rollouts)
        _, more_puts = self._answers(advantages)
        gets = self._answers(trainers)[1] if self._batch is not None else []
        self._answers([reader])
        self._answers([clearer])
        self._note("put, ms", puts + more_puts)
        self._note("get, ms", gets)

        batch = BatchMeta.concat(made).select_fields(FIELDS[:4])
        whole = self.client.get_meta(FIELDS, 0, roles.PARTITION, mode="force_fetch")
        order = {index: at for at, index in enumerate(whole.global_indexes)}
        batch = whole.select_samples([order[index] for index in batch.global_indexes])
        self._done, self._batch = self._batch, self.client.coalesce(batch)
        self.steps += 1

    def _to_clear(self) -> list[BatchMeta]:
        if self._done is None:
            return []
        positions = list(range(ROWS))
        self._chooser.shuffle(positions)
        kept = round(ROWS * KEPT_SHARE)
        self._kept.append(self._done.select_samples(positions[:kept]))
        gone = [self._done.select_samples(positions[kept:])]
        if len(self._kept) > self._kept_steps:
            gone.append(self._kept.pop(0))
        return [piece for meta in gone for piece in roles.shuffled_rows(meta, self._chooser)]

    def _answers(self, children: list[Child]) -> tuple[list[Any], list[float]]:
        answers = [child.receive(120) for child in children]
        return [result for result, _ in answers], [seconds for _, times in answers for seconds in times]

    def _note(self, name: str, times: list[float]) -> None:
        if times:
            self.samples[name].append(median(times) * 1e3)
            self.samples[f"{name}, longest"].append(max(times) * 1e3)

    def sample(self) -> None:
        """Figures of the processes and the store, between two steps."""
        for role, children in self.cast.items():
            for at, child in enumerate(children):
                child.pipe.send(("figures",))
                for name, value in child.receive().items():
                    self.samples[f"{role} {at}: {name}"].append(value)
        for name, value in roles.figures_of(os.getpid()).items():
            self.samples[f"controller: {name}"].append(value)
        figures = self.client._store.stats()
        mebibyte = 1 << 20
        bound = FRAGMENTATION * figures["live_bytes"] + figures["total_bytes"] / SLACK_SHARE + figures["leased_bytes"]
        if figures["used_bytes"] > bound:
            self.fragmented.append(f"step {self.steps}: {figures}")
        self.samples["store used, MiB"].append(figures["used_bytes"] / mebibyte)
        self.samples["store live, MiB"].append(figures["live_bytes"] / mebibyte)
        self.samples["store used / live"].append(figures["used_bytes"] / max(1, figures["live_bytes"]))
        self.samples["store free pieces"].append(figures["free_extents"])
        self.samples["store largest free, MiB"].append(figures["largest_free_extent_bytes"] / mebibyte)
        self.samples["index used, KiB"].append(figures["index_used_bytes"] / 1024)
        self.samples["rows"].append(figures["rows"])

    def end(self) -> None:
        """Ends the processes; each says that it closed in order."""
        for children in self.cast.values():
            for child in children:
                child.pipe.send(None)
                assert child.wait() == 0

    # -- what came out -------------------------------------------------------------------------------------------------
    def growing(self, kinds: Container[str] = TOLERANCES) -> list[str]:
        """Names of figures of these kinds that were not flat."""
        return [
            name
            for name, samples in self.samples.items()
            if (tolerance := self._tolerance(name)) is not None
            and name.rpartition(": ")[2] in kinds
            and not Thirds.of(samples).is_flat(tolerance)
        ]

    def report(self) -> str:
        """Tables for people."""
        counts = self.client._store.counts()
        seconds = time.monotonic() - self.began_s
        written = counts["put_bytes"] + counts["coalesced_bytes"]
        head = (
            f"{self.steps} steps in {seconds:.0f} s, {self.steps * ROWS} rows; {counts['put_bytes'] / 1e9:.2f} GB put, "
            f"{counts['coalesced_bytes'] / 1e9:.2f} GB coalesced, {counts['compacted_bytes'] / 1e6:.1f} MB moved into "
            f"{counts['compacted_blocks']} blocks: {counts['compacted_bytes'] / max(1, written):.3f} of the others"
        )
        store = [name for name in self.samples if ": " not in name]
        rows = [(name, Thirds.of(self.samples[name]), self._tolerance(name)) for name in store]
        parts = [head, table(rows, "store and calls")]
        for what, title in {
            "rss": "RSS, MiB",
            "pss": "PSS, MiB",
            "private": "private, MiB",
            "pool": "pool of gathers, MiB",
            "fds": "",
            "maps": "",
        }.items():
            names = [name for name in self.samples if name.endswith(f": {what}")]
            found = [(n.partition(":")[0], Thirds.of(self.samples[n]), self._tolerance(n)) for n in names]
            parts.append(table(found, title or what))
        return "\n\n".join(parts)

    @staticmethod
    def _tolerance(name: str) -> Tolerance | None:
        return TOLERANCES.get(name.rpartition(": ")[2])
