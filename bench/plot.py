"""put + get of W against every peer, as ratios to memcpy (logarithmic: the systems are two decades apart)."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def plot(results: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    chosen = [item for item in results if item["claim"] == "put_get_w" and item["summary"].get("put_get_ratio")]
    chosen.sort(key=lambda item: -item["summary"]["put_get_ratio"])
    if not chosen:
        return
    figure, axis = pyplot.subplots(figsize=(8, 0.55 * len(chosen) + 1.4), facecolor="white")
    ratios = [item["summary"]["put_get_ratio"] for item in chosen]
    colours = ["#1f6feb" if item["system"] == "transferqueue-shm" else "#9aa4b2" for item in chosen]
    axis.barh([item["system"] for item in chosen], ratios, color=colours)
    for row, ratio in enumerate(ratios):
        axis.text(ratio * 1.05, row, f"{ratio:.2f}x", va="center")
    axis.axvline(1.0, color="#444444", linewidth=1, linestyle="--")
    axis.set_xscale("log")
    axis.set_xlim(0.5, max(ratios) * 2.2)
    axis.set_xlabel("put + get of W (512 rows, 67 MB), in memcpys of the same bytes")
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
