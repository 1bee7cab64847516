"""Where the ranks of a group meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transferqueue.workers.master_port import check_port_range


@dataclass(frozen=True)
class Rendezvous:
    """Address and port of the ranks' rendezvous: given, or (None) chosen by rank 0 on its node when the group starts.

    Args:
        address: a host or address that all ranks reach; IPv6 with or without brackets.
        port: a port there that rank 0 can listen on when its process group is made.
        port_range: where the port is to be chosen: from the first up to, not including, the second.

    Raises `ValueError` when only one of address and port is given, both and a range, or what is no port.
    """

    address: str | None = None
    port: int | str | None = None
    port_range: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if (self.address is None) != (self.port is None):
            raise ValueError(
                f"master_addr={self.address!r} and master_port={self.port!r}: give both, or neither to have them "
                "chosen on the node of rank 0"
            )
        if self.port_range is not None:
            check_port_range(self.port_range)
            if self.port is not None:
                raise ValueError(
                    f"master_port={self.port!r} and master_port_range={self.port_range!r}: give one of them"
                )
        if self.port is not None and not (str(self.port).isdecimal() and 0 < int(self.port) < 65536):
            raise ValueError(f"master_port must be 1 to 65535, got {self.port!r}")

    @property
    def given(self) -> tuple[str, str] | None:
        """What the ranks find in MASTER_ADDR and MASTER_PORT; None when it is yet to be chosen."""
        if self.address is None or self.port is None:
            return None
        return self.address.strip("[]"), str(self.port)
