"""What must hold, as data: the runner, the table and the tests read the same goals.

A goal names a measurement (`Measured.claim`) of our own system and a value of it: an entry of its summary (medians,
ratios to the memcpy of the same run) or of its facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SYSTEM = "transferqueue-shm"


@dataclass(frozen=True)
class Goal:
    """One number that a claim promises.

    Attributes:
        number: of the claim; the claims are numbered as in docs/benchmarks.md.
        title: what is measured, in words.
        claim, value: `Measured.claim` and the name of the value in its summary or facts.
        limit: the promise, in `unit`.
        at_least: whether more is better; else less is.
        tolerance: what the measurement itself cannot resolve; added to the limit.
    """

    number: int
    title: str
    claim: str
    value: str
    limit: float
    unit: str
    at_least: bool = False
    tolerance: float = 0.0

    def met_by(self, measured: float) -> bool:
        """Whether that value keeps the promise."""
        if self.at_least:
            return measured >= self.limit - self.tolerance
        return measured <= self.limit + self.tolerance

    @property
    def promise(self) -> str:
        """The limit as the table prints it."""
        return f"{'>=' if self.at_least else '<='} {self.limit:g} {self.unit}".rstrip()


@dataclass(frozen=True)
class Verdict:
    """A goal and what was measured; None where nothing was."""

    goal: Goal
    measured: float | None

    @property
    def word(self) -> str:
        """`met`, `not met` or `not measured`."""
        if self.measured is None:
            return "not measured"
        return "met" if self.goal.met_by(self.measured) else "not met"


def value_of(result: Mapping[str, Any], name: str) -> float | None:
    """The named entry of a result's summary or facts."""
    for part in ("summary", "facts"):
        found = result.get(part, {}).get(name)
        if isinstance(found, (int, float)) and not isinstance(found, bool):
            return float(found)
    return None


def judge(goals: Iterable[Goal], results: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """One verdict a goal, by our own results; where a measurement was taken twice the last one counts."""
    ours = {item["claim"]: item for item in results if item["system"] == SYSTEM}
    return [Verdict(goal, value_of(ours.get(goal.claim, {}), goal.value)) for goal in goals]


CLAIMS = {
    1: "put + get of W",
    2: "get alone",
    3: "written in place",
    4: "small batches",
    5: "keys and many rows",
    6: "random rows",
    7: "first read",
    8: "metadata",
    9: "fan-out and dispatch",
    10: "memory",
    11: "waiting",
    12: "concurrency",
    13: "between two nodes",
}
MEMCPY = "x memcpy"
GOALS: tuple[Goal, ...] = (
    Goal(1, "put + get of W", "put_get_w", "put_get_ratio", 1.2, MEMCPY),
    Goal(1, "put + get of 8 times the rows", "put_get_w_big", "put_get_ratio", 1.2, MEMCPY),
    Goal(1, "put alone, warm", "put_get_w", "put_ratio", 1.1, MEMCPY),
    Goal(2, "get of W's tensor fields", "get_alone", "tensor_fields_ratio", 0.03, MEMCPY),
    Goal(2, "get of W, strings included", "get_alone", "all_fields_ratio", 0.1, MEMCPY),
    Goal(2, "512 against 64 rows, tensor fields", "get_alone", "time_512_to_64_rows", 1.25, "x"),
    Goal(2, "4,096 against 512 rows, tensor fields", "get_alone", "time_4096_to_512_rows", 1.25, "x"),
    Goal(2, "32 fields against 4", "get_alone", "time_32_to_4_fields", 2.0, "x"),
    Goal(3, "beyond the producer's writing, no tensor alive", "written_in_place_dead", "beyond_ratio", 0.1, MEMCPY),
    Goal(3, "beyond the producer's writing, tensors alive", "written_in_place_alive", "beyond_ratio", 0.4, MEMCPY),
    Goal(3, "a worker method's outputs", "written_in_place_worker", "beyond_ratio", 0.1, MEMCPY),
    Goal(4, "8 rows x 16 floats, put", "small", "small_put_ms", 0.15, "ms"),
    Goal(4, "8 rows x 16 floats, get", "small", "small_get_ms", 0.10, "ms"),
    Goal(
        4,
        "single-row puts, 1 process",
        "single_row_puts",
        "single_row_puts_per_second_1_process",
        5000,
        "/s",
        at_least=True,
    ),
    Goal(4, "2 processes against 1", "single_row_puts", "single_row_puts_2_over_1_process", 1.0, "x", at_least=True),
    Goal(4, "4 processes against 1", "single_row_puts", "single_row_puts_4_over_1_process", 1.0, "x", at_least=True),
    Goal(
        4, "200 agent tasks, 20 fields a row", "agent_loop", "agent_loop_rows_per_second", 2000, "rows/s", at_least=True
    ),
    Goal(5, "10,000 keys, put", "keys_10k_put", "keys_10k_put_ms", 20, "ms"),
    Goal(5, "10,000 keys, get", "keys_10k_get", "keys_10k_get_ms", 12, "ms"),
    Goal(5, "10,000 keys, list", "keys_10k_list", "keys_10k_list_ms", 8, "ms"),
    Goal(5, "10,000 keys, metadata", "keys_10k_metadata", "keys_10k_metadata_ms", 8, "ms"),
    Goal(5, "get by key instead of metadata", "by_keys", "by_keys_extra_us_per_key_512", 1.2, "us a key"),
    *(
        Goal(5, f"512 {kind} rows among a million, {verb}", claim, f"{claim}_{verb}_million_over_empty", 1.5, "x")
        for kind, claim in (("new", "scale_rows_fresh"), ("keyed", "scale_rows_keyed"))
        for verb in ("put", "get")
    ),
    Goal(6, "64 random rows of 512, all fields", "random_64_of_512", "random_64_get_ms", 3.5, "ms"),
    Goal(6, "the same against numpy's take", "random_64_of_512", "random_64_over_numpy_take", 1.2, "x"),
    Goal(6, "512 single-row puts gathered", "scattered_512", "scattered_gather_over_memcpy", 1.2, MEMCPY),
    Goal(6, "the same after coalesce", "scattered_512", "scattered_coalesced_get_over_memcpy", 0.1, MEMCPY),
    Goal(7, "first read of a view against the second", "first_read_steady", "first_to_second_read", 1.2, "x"),
    Goal(7, "fresh process: get + touch of every page", "first_read_fresh", "get_touch_ratio", 0.7, MEMCPY),
    Goal(7, "get + drop", "first_read_steady", "get_drop_ratio", 0.15, MEMCPY),
    Goal(7, "get + drop of a view that was read", "first_read_steady", "get_drop_after_use_ratio", 0.15, MEMCPY),
    Goal(8, "512 contiguous rows, pickled", "metadata_bytes", "metadata_bytes_contiguous_512", 1000, "B"),
    Goal(8, "4,096 contiguous rows, pickled", "metadata_bytes", "metadata_bytes_contiguous_4096", 1000, "B"),
    Goal(8, "4,096 scattered rows, pickled", "metadata_bytes", "metadata_bytes_scattered_4096", 20_000, "B"),
    *(
        Goal(
            8, f"8,192 {kind} rows split and joined", "metadata_split_join", f"metadata_split_join_{kind}_ms", 10, "ms"
        )
        for kind in ("contiguous", "scattered")
    ),
    Goal(9, "W to 4 workers, beyond put and empty calls", "fan_out_4", "beyond_the_calls_ms", 5.0, "ms"),
    Goal(9, "metadata round over 4 ranks", "dispatch_collect_4_metadata", "ratio_to_empty_calls", 1.3, "x empty calls"),
    Goal(9, "the same, batch seen as TensorDict", "dispatch_collect_4", "ratio_to_empty_calls", 1.3, "x empty calls"),
    Goal(10, "copies resident, both sides holding", "memory", "copies_put", 2.0, "copies", tolerance=0.02),
    Goal(10, "copies resident, written in place", "memory", "copies_in_place", 1.0, "copies", tolerance=0.02),
    Goal(10, "what 7 more readers add", "memory", "copies_added_by_7_readers", 0.0, "copies", tolerance=0.02),
    Goal(10, "used after clear and drop", "memory", "used_bytes_after", 0.0, "B"),
    Goal(10, "controller's growth while 1 GiB is dispatched", "controller_payload", "peak_growth_mib", 10.0, "MiB"),
    *(
        Goal(11, f"wake-up of {face}, {share}", f"wake_up_{face}", f"wake_up_{face}_{share}_ms", limit, "ms")
        for face in ("threads", "tasks")
        for share, limit in (("p50", 0.1), ("p99", 2.0))
    ),
    *(
        Goal(11, f"64 idle {kind}", f"idle_waiters_{kind}", f"idle_64_{kind}_percent_of_a_core", 1.0, "% of a core")
        for kind in ("processes", "threads", "tasks")
    ),
    *(
        Goal(
            12,
            f"{kind} batches, 1 to 16 processes",
            f"concurrency_{kind}",
            f"concurrency_{kind}_kept_of_best",
            0.85,
            "of the best",
            at_least=True,
        )
        for kind in ("small", "large", "larger")
    ),
    # Plain copies lose throughput too as processes and their bytes are added: what the store loses beside them.
    *(
        Goal(
            12,
            f"{kind} batches, against as many plain copiers",
            f"concurrency_{kind}",
            f"concurrency_{kind}_kept_of_memcpy",
            0.85,
            "of what they keep",
            at_least=True,
        )
        for kind in ("large", "larger")
    ),
    Goal(12, "write lock held, p99", "lock_holds", "write_lock_held_p99_ms", 0.5, "ms"),
    *(
        Goal(
            13,
            f"W to {count} reader{'s' if count > 1 else ''} of the other node, against the better peer",
            f"two_nodes_{count}",
            "faster_than_peers",
            2.0,
            "x",
            at_least=True,
        )
        for count in (1, 4)
    ),
    Goal(13, "bytes over the wire, 4 readers", "two_nodes_4", "pulled_over_payload", 1.02, "x payload"),
    Goal(13, "8 readers against 1", "two_nodes_8", "time_over_1_reader", 1.25, "x"),
)
