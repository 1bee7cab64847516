"""The guard of CI: a few ratios, measured in seconds, against those recorded in `guard.json`; fails when one of them
worsened by more than half. Ratios, never times: to a memcpy of the same bytes, to the same filling of private memory,
or to a fixed piece of Python work, each taken between the measurements of the same try.

`python -m bench.guard` checks; `--record` takes the ratios anew, on a quiet machine, after a change that is meant to
move them. One process, one session: what it guards is the work of a call, not the hand-over between processes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from bench.ours import PARTITION, session, settle
from bench.timing import MemcpyUnit
from bench.workload import payload_nbytes, small_batch, touch_pages, workload_w
from transferqueue.microbench import machine

BASELINE = Path(__file__).resolve().parent / "guard.json"
ALLOWED = 1.5  # times the recorded ratio
TRIES = 10  # a neighbour's burst spoils some, a slower product all of them
PAUSE_S = 0.3  # before another try, and so much more before each further one
ROWS = 256
KEYS = 1000
LARGE_ROUNDS, SMALL_ROUNDS = 15, 60
Timed = Callable[[], object]


def python_work() -> int:
    """Under a millisecond of strings, tuples, dictionaries, calls and arithmetic, some 300 kB of objects: the unit of
    calls that are all overhead. It loses to a neighbour that empties the caches about what they lose."""
    kept: dict[str, tuple[int, int]] = {}
    total = 0
    for number in range(1500):
        kept[f"name-{number:06d}"] = (total, number)
        total += len(kept) ^ number
    return total + len(sorted(kept))


def seconds(call: Timed) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


class World:
    """The session and the batches of one check; each `NAME_against_UNIT` method measures one ratio once."""

    def __init__(self, client: Any) -> None:
        self.on_huge_pages = False
        self._client = client
        self._batch = workload_w(ROWS)
        self._unit = MemcpyUnit(payload_nbytes(self._batch))
        self._dense = {name: value for name, value in self._batch.items() if name not in ("prompts", "uid")}
        self._fields = {name: (tuple(value.shape[1:]), value.dtype) for name, value in self._dense.items()}
        self._private = {name: torch.empty_like(value) for name, value in self._dense.items()}
        self._names = [f"key-{index:06d}" for index in range(KEYS)]
        self._keyed = TensorDict({"x": torch.zeros(KEYS, 4)}, [KEYS])
        self._row = TensorDict({f"field_{index:02d}": torch.zeros(1, 16) for index in range(20)}, [1])
        self._small = small_batch()

    def put_against_memcpy(self) -> float:
        """W of 256 rows into warm memory."""
        return self._large(lambda: self._client.put(self._batch, partition_id=PARTITION), self._unit.seconds)

    def get_against_memcpy(self) -> float:
        """All seven fields."""
        meta = self._client.put(self._batch, partition_id=PARTITION)
        return self._large(lambda: self._client.get_data(meta), self._unit.seconds, clear=False)

    def get_and_touch_against_memcpy(self) -> float:
        """Get and touching every page."""
        meta = self._client.put(self._batch, partition_id=PARTITION)
        return self._large(lambda: touch_pages(self._client.get_data(meta)), self._unit.seconds, clear=False)

    def written_in_place_against_own_writing(self) -> float:
        """`alloc`, fill, `commit` with no tensor alive; against filling warm private memory."""

        def produce() -> None:
            allocation = self._client.alloc(self._fields, partition_id=PARTITION, batch_size=ROWS)
            self._fill(allocation.data)
            allocation.commit()

        return self._large(produce, lambda: seconds(lambda: self._fill(self._private)))

    def small_put_against_python(self) -> float:
        """8 rows x 16 floats."""
        return self._overhead(lambda: self._client.put(self._small, partition_id=PARTITION))

    def small_get_against_python(self) -> float:
        meta = self._client.put(self._small, partition_id=PARTITION)
        return self._overhead(lambda: self._client.get_data(meta))

    def row_put_against_python(self) -> float:
        """One row of 20 fields."""
        return self._overhead(lambda: self._client.put(self._row, partition_id=PARTITION))

    def keys_put_against_python(self) -> float:
        """1,000 keys."""
        return self._overhead(
            lambda: self._client.kv_batch_put(keys=self._names, partition_id=PARTITION, fields=self._keyed), repeat=4
        )

    def keys_get_against_python(self) -> float:
        self._client.kv_batch_put(keys=self._names, partition_id=PARTITION, fields=self._keyed)
        return self._overhead(lambda: self._client.kv_batch_get(keys=self._names, partition_id=PARTITION), repeat=4)

    def metadata_against_python(self) -> float:
        """7 fields x 2,048 rows split in 64 and joined again."""
        batch = TensorDict({f"field_{index}": torch.zeros(2048, 1) for index in range(7)}, [2048])
        meta = self._client.put(batch, partition_id=PARTITION)
        return self._overhead(lambda: tq.BatchMeta.concat(meta.chunk(64)), repeat=4)

    def _fill(self, target: Any) -> None:
        for name, value in self._dense.items():
            target[name].copy_(value)

    def _large(self, call: Timed, unit: Callable[[], float], *, clear: bool = True) -> float:
        """The fastest of a few against the fastest unit: both were undisturbed."""
        taken, units = [], []
        for _ in range(LARGE_ROUNDS):
            taken.append(seconds(call))
            units.append(unit())
            if clear:
                self._client.clear_partition(PARTITION)
        return min(taken) / min(units)

    def _overhead(self, call: Timed, repeat: int = 1) -> float:
        """Medians of many, in turns; a call that is sometimes slow moves its median, not its minimum."""
        call()
        taken, units = [], []
        for _ in range(SMALL_ROUNDS // repeat):
            taken.append(seconds(call))
            units.append(seconds(python_work))
        return statistics.median(taken) / statistics.median(units)


RATIOS: Mapping[str, Callable[[World], float]] = {
    name: getattr(World, name) for name in vars(World) if "_against_" in name
}


# A kernel without huge pages for shared memory pays page faults in these, which is not the product's doing; that the
# product uses huge pages where there are some is a test of its own.
PAGED = frozenset({"get_and_touch_against_memcpy", "written_in_place_against_own_writing"})


def comparable(on_huge_pages: bool) -> list[str]:
    """The ratios of such a system that compare with those recorded, which were recorded with huge pages."""
    return [name for name in RATIOS if on_huge_pages or name not in PAGED]


@contextmanager
def world() -> Iterator[World]:
    """A session of its own, one thread of torch."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with session("512MiB"):
            client = tq.get_client()
            opened = World(client)
            opened.put_against_memcpy()  # the memory that the others use is backed and touched
            opened.on_huge_pages = settle(client) > 0
            yield opened
    finally:
        torch.set_num_threads(threads)


def measure(measured_world: World, names: Iterable[str]) -> dict[str, float]:
    """One try of each."""
    found = {}
    for name in names:
        found[name] = RATIOS[name](measured_world)
        tq.get_client().clear_partition(PARTITION)
    return found


@dataclass(frozen=True)
class Worse:
    """A ratio beyond what is allowed."""

    name: str
    recorded: float
    best: float

    def __str__(self) -> str:
        times = self.best / self.recorded
        return f"{self.name}: {self.best:.3g} at best, {times:.2f}x of the {self.recorded:.3g} recorded"


def worse(best: Mapping[str, float], recorded: Mapping[str, float], allowed: float = ALLOWED) -> list[Worse]:
    """Which of the best ratios exceed `allowed` times what was recorded.

    Raises:
        ValueError: something is measured that was not recorded, or the other way round.
    """
    if best.keys() != recorded.keys():
        differing = sorted(best.keys() ^ recorded.keys())
        raise ValueError(f"measured and recorded ratios differ in {differing}: run `python -m bench.guard --record`")
    return [
        Worse(name, recorded[name], ratio) for name, ratio in sorted(best.items()) if ratio > allowed * recorded[name]
    ]


def check(recorded: Mapping[str, float], tries: int = TRIES) -> list[Worse]:
    """Measures until nothing is worse, `tries` times at most; what is worse in the best of them."""
    with world() as measured_world:
        names = comparable(measured_world.on_huge_pages)
        recorded = {name: ratio for name, ratio in recorded.items() if name in names or name not in RATIOS}
        best = measure(measured_world, names)
        found = worse(best, recorded)
        for attempt in range(1, tries):
            if not found:
                break
            time.sleep(PAUSE_S * attempt)
            again = measure(measured_world, [item.name for item in found])
            best |= {name: min(best[name], ratio) for name, ratio in again.items()}
            found = worse(best, recorded)
    return found


def read_baseline() -> dict[str, float]:
    """The recorded ratios."""
    ratios: dict[str, float] = json.loads(BASELINE.read_text())["ratios"]
    return ratios


def record() -> dict[str, float]:
    """Takes the median of five tries of each and writes `guard.json`.

    Raises:
        RuntimeError: the system gives no huge pages.
    """
    with world() as measured_world:
        if not measured_world.on_huge_pages:
            raise RuntimeError(
                "this system gives no huge pages: what is recorded here would excuse page faults elsewhere"
            )
        tries = [measure(measured_world, RATIOS) for _ in range(5)]
    ratios = {name: round(statistics.median(taken[name] for taken in tries), 5) for name in RATIOS}
    BASELINE.write_text(json.dumps({"recorded_on": machine.describe(), "ratios": ratios}, indent=1) + "\n")
    return ratios


def main() -> int:
    """Exit status 1 when a ratio is worse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="take the ratios anew and write guard.json")
    if parser.parse_args().record:
        for name, ratio in record().items():
            print(f"{ratio:10.4g}  {name}")
        return 0
    found = check(read_baseline())
    for item in found:
        print(f"worse: {item}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
