"""Whether figures of a long run still grow after its warm-up."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

WARM_UP_SHARE = 0.2


@dataclass(frozen=True)
class Tolerance:
    """How much more the median of the last third may be than that of the first: a share of it and an amount."""

    share: float
    amount: float


@dataclass(frozen=True)
class Thirds:
    """Medians of the first, second and last third of the samples after the warm-up; and the largest of them all."""

    medians: tuple[float, float, float]
    largest: float

    @classmethod
    def of(cls, samples: list[float]) -> Thirds:
        """At least three samples after the warm-up."""
        rest = samples[int(len(samples) * WARM_UP_SHARE) :]
        third = len(rest) // 3
        assert third >= 1, f"{len(samples)} samples are too few"
        parts = (rest[:third], rest[third : 2 * third], rest[2 * third :])
        return cls((median(parts[0]), median(parts[1]), median(parts[2])), max(rest))

    def is_flat(self, tolerance: Tolerance) -> bool:
        """The last third is not above the first by more than the tolerance. A leak of a fixed amount a step shows with
        two thirds of all of it, whatever the spikes; what falls, or only swings, passes."""
        first, _, last = self.medians
        return last <= first * (1 + tolerance.share) + tolerance.amount


def table(rows: list[tuple[str, Thirds, Tolerance | None]], title: str) -> str:
    """For people."""
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{title:<{width}} | 1st third | 2nd third | 3rd third |   largest | grew"]
    lines.append("-" * len(lines[0]))
    for name, thirds, tolerance in rows:
        numbers = " | ".join(f"{value:9.2f}" for value in (*thirds.medians, thirds.largest))
        first, _, last = thirds.medians
        grew = f"{(last / first - 1) * 100:+.1f} %" if first else f"{last:+.2f}"
        verdict = "" if tolerance is None else "  flat" if thirds.is_flat(tolerance) else "  GROWS"
        lines.append(f"{name:<{width}} | {numbers} | {grew}{verdict}")
    return "\n".join(lines)
