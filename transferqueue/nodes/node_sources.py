"""Other nodes as sources of payload: the node that keeps it, else any that has a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from transferqueue.errors import DataLostError, TransferQueueError
from transferqueue.nodes.described import Described, Request
from transferqueue.nodes.errors import GoneError
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.names import PAYLOAD
from transferqueue.nodes.pull_block import PullPart
from transferqueue.nodes.transport.protocol import Transport


class NodeSources:
    """Asks nodes through a transport; when the node that should have rows is lost, all others. See `fetching.Sources`.

    Args:
        link: of the process.
        transport: how payload comes.
    """

    def __init__(self, link: NodeLink, transport: Transport) -> None:
        self._link = link
        self._transport = transport

    def describe(self, request: Request, until_s: float | None) -> tuple[Request, Described]:
        """What the rows are, and the request that was answered, which may be of another node that has them, too.

        Raises:
            DataLostError: their node is lost, and nobody else has all of them.
        """
        try:
            return self._described(request, until_s)
        except DataLostError as error:
            if request.what.partition != PAYLOAD:
                raise
            lost = error
        for ordinal in self._holders(request):
            try:
                return self._described(replace(request, ordinal=ordinal), until_s)
            except (DataLostError, GoneError):
                continue
        raise lost

    def pull(self, request: Request, into: PullPart, until_s: float | None) -> None:
        """Their bytes, all of them."""
        try:
            place = self._link.last_place(request.ordinal, until_s)
            with self._link.naming_full(request.ordinal):
                self._transport.pull(place, request.what, into, until_s=until_s)
        except DataLostError as error:
            if request.what.partition != PAYLOAD:
                raise
            # It was described a moment ago. Another look finds who else has it, or that nobody does.
            raise GoneError(error.message, rows=tuple(request.what.rows.tolist())) from error

    def _described(self, request: Request, until_s: float | None) -> tuple[Request, Described]:
        place = self._link.last_place(request.ordinal, until_s)
        with self._link.naming_full(request.ordinal):
            return request, self._transport.describe(place, request.what, until_s=until_s).fields

    def _holders(self, request: Request) -> Sequence[int]:
        holders = []
        for ordinal in self._link.others():
            try:
                args = {"names": request.what.rows}
                there = self._link.call(ordinal, "payload.alive", args, until_s=self._link.until(None))
            except TransferQueueError:
                continue  # it cannot say
            if bool(np.asarray(there).all()):
                holders.append(ordinal)
        return holders
