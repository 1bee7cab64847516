"""The model of `client_model` with several processes as hands, any of which may be killed: between calls, at a named
point inside one, or at any moment of one. What was committed stays, what was not never was; views, allocations and
claims of the dead are gone."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

import transferqueue as tq
from tests.race.client_model import KEYS, ClientModel, Row, any_hand, partitions, some_fields
from tests.race.hand import ElsewhereHand, Hand
from tests.race.model_rows import FIELDS, Expected
from tests.support.nursery import Nursery

HANDS = 3
# Points inside a put, and whether what is put is there when the process dies at them.
PUT_POINTS = {
    "put.after_copy": False,
    "put.before_publish": False,
    "index.publish.before_commit": False,
    "put.after_commit_before_wake": True,
    "retire.after_commit": True,
    "retire.before_scan": True,
}
DEATHS = ["idle", "in put", "in clear", "overwriting", "coalescing", "spilling", "compacting"]
CLEAR_POINTS = {"index.before_commit": False, "retire.after_commit": True, "retire.after_word": True}


class ProcessModel(ClientModel):
    """`hands` are of processes of `nursery`, and stay from example to example as long as they live."""

    nursery: Nursery
    hands: list[ElsewhereHand]

    # -- help ------------------------------------------------------------------------------------------------------
    @property
    def _here(self) -> Hand:
        return Hand(self.client)

    def _replace(self, hand: int) -> None:
        """Somebody else is in the place of a process that died; what it held is gone, what it left is given back."""
        at = hand % HANDS
        self.hands[at] = ElsewhereHand(self.nursery, self.client.session)
        self.held = [held for held in self.held if held.hand % HANDS != at]
        self.open = [each for each in self.open if each.hand % HANDS != at]
        self.claims = [claim for claim in self.claims if claim.hand % HANDS != at]
        self.client._store.reap()

    def _is_there(self, partition: str, rows: list[Row], names: list[str], version: int) -> bool:
        """After a put whose end nobody saw: whether it happened, wholly or not at all."""
        after: list[Expected] = [(row.number, row.versions | dict.fromkeys(names, version)) for row in rows]
        before: list[Expected] = [(row.number, row.versions) for row in rows]
        indexes = [row.index for row in rows]
        try:
            self._here.do("get", partition, indexes, names, "copy", after, None)
        except (AssertionError, tq.FieldNotReadyError):
            known = [name for name in names if all(name in row.versions for row in rows)]
            if known:
                self._here.do("get", partition, indexes, known, "copy", before, None)
            return False
        return True

    # -- deaths ----------------------------------------------------------------------------------------------------
    @rule(
        hand=any_hand,
        data=st.data(),
        how=st.sampled_from(DEATHS),
    )
    def die(self, hand: int, data: Any, how: str) -> None:
        """One rule for all: a death takes longer than anything else."""
        full = any(self.rows.values())
        if how == "in put":
            self._die_in_put(hand, data)
        elif how == "in clear" and full:
            self._die_in_clear(hand, data)
        elif how in ("overwriting", "coalescing", "spilling", "compacting") and full:
            self._die_at_some_moment(hand, data, how)
        else:
            self.hands[hand % HANDS].kill()
            self._replace(hand)

    def _armed(self, hand: int, point: str, what: str, *arguments: Any) -> bool:
        """A call that dies at the point, if it passes it, and else afterwards; whether it came to its end."""
        worker = self.hands[hand % HANDS]
        worker.do("arm", point)
        worker.begin(what, *arguments)
        ended = worker.settle()
        worker.kill()
        self._replace(hand)
        return ended

    def _die_in_put(self, hand: int, data: Any) -> None:
        partition, point = data.draw(partitions), data.draw(st.sampled_from(sorted(PUT_POINTS)))
        keys = data.draw(st.lists(st.sampled_from(KEYS), min_size=1, unique=True))
        names, version = data.draw(some_fields), self._next()
        known = self._key_rows(partition, keys)
        numbers = [row.number if row is not None else self._next() for row in known]
        ended = self._armed(hand, point, "put_keys", partition, keys, names, numbers, version, False)
        if ended or PUT_POINTS[point]:
            indexes = list(self.client.kv_retrieve_meta(keys, partition).global_indexes)
            self._keys_were_put(partition, keys, names, numbers, version, indexes, tagged=False)
            expected: list[Expected] = [(row.number, row.versions) for row in self._key_rows(partition, keys) if row]
            self._here.do("get", partition, indexes, names, "copy", expected, None)

    def _die_in_clear(self, hand: int, data: Any) -> None:
        partition, point = self._filled(data), data.draw(st.sampled_from(sorted(CLEAR_POINTS)))
        rows = self._chosen(data, partition)
        ended = self._armed(hand, point, "clear", partition, [row.index for row in rows])
        if ended or CLEAR_POINTS[point]:
            self._remove(partition, rows)

    def _die_at_some_moment(self, hand: int, data: Any, how: str) -> None:
        """An overwrite is there wholly or not at all; the others change nothing that a user sees."""
        partition, version = self._filled(data), self._next()
        rows = self._chosen(data, partition)
        indexes = [row.index for row in rows]
        worker = self.hands[hand % HANDS]
        names: list[str] = data.draw(some_fields) if how == "overwriting" else []
        if how == "overwriting":
            worker.begin("overwrite", partition, indexes, names, [row.number for row in rows], version)
        elif how == "coalescing":
            common = sorted(set.intersection(*(set(row.versions) for row in rows)))
            worker.begin("coalesce", partition, indexes, common or FIELDS[:1])
        else:
            worker.begin("keep_house", {"spilling": "spill", "compacting": "compact"}[how])
        time.sleep(data.draw(st.floats(0, 4)) / 1000)
        worker.kill()
        self._replace(hand)
        if how == "overwriting" and self._is_there(partition, rows, names, version):
            for row in rows:
                row.versions |= dict.fromkeys(names, version)
        for row in rows:
            if row.versions:
                expected: list[Expected] = [(row.number, row.versions)]
                self._here.do("get", partition, [row.index], sorted(row.versions), "copy", expected, None)
