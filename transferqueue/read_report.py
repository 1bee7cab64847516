"""What one read cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadReport:
    """Bytes and seconds of one `get_data_with_report`.

    `bytes_viewed` were mapped, not copied; `bytes_copied` were gathered into private memory. `resolve_s` is the
    look-up in the index, `wait_s` the time spent waiting for fields that were not ready. `bytes_pulled` came from other
    nodes for this read; what this node had of them before is not among them.
    """

    rows: int = 0
    bytes_viewed: int = 0
    bytes_copied: int = 0
    resolve_s: float = 0.0
    wait_s: float = 0.0
    bytes_pulled: int = 0
