"""What a worker asks about its node."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from transferqueue.workers.master_port import reserve_master_port
from transferqueue.workers.ray_runtime import node_facts, node_ip


class WorkerHelper:
    """Node address, node id and ports, as methods of a worker."""

    @staticmethod
    def _get_node_ip() -> str:
        """The address at which other nodes reach this one; IPv6 without brackets. Without Ray the loopback address."""
        return node_ip()

    @staticmethod
    def _get_free_port() -> int:
        """A TCP port that nothing uses now. Another process may take it before it is used: for a rendezvous there is
        `reserve_master_addr_port`, which holds it."""
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])

    def get_available_master_addr_port(self) -> tuple[str, str]:
        """This node's address and a port that is free now; see `_get_free_port`."""
        return self._get_node_ip(), str(self._get_free_port())

    get_availale_master_addr_port = get_available_master_addr_port  # the spelling in older programs for verl

    def reserve_master_addr_port(self, port_range: Sequence[int] | None = None) -> tuple[str, str]:
        """This node's address and a port that this process holds for a rendezvous with itself as rank 0.

        No other process can take it. `stateless_init_process_group` and `torch.distributed` use it from this process.

        Args:
            port_range: ports from the first up to, not including, the second. None: any.

        Raises `NoFreePortError` when all of the range are taken.
        """
        return self._get_node_ip(), str(reserve_master_port(port_range).port)

    def get_node_id(self) -> str:
        """The id of this node in the Ray cluster; without Ray the host name."""
        return node_facts().node_id
