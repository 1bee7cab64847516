"""What an agent remembers of a directory, and tells the next one."""

from __future__ import annotations

from typing import Any

import pytest

from transferqueue.errors import CorruptSegmentError
from transferqueue.nodes.directory.mirror import Mirror
from transferqueue.nodes.directory.role import Role
from transferqueue.nodes.directory.service import DirectoryService
from transferqueue.nodes.rpc_server import Call


def called(directory: DirectoryService, method: str, **args: Any) -> Any:
    return directory.handlers()[f"directory.{method}"](Call(method, args, bytes(16), 0.1, "a test"))


def join(directory: DirectoryService, name: str, ordinal: int, **more: Any) -> None:
    called(directory, "join", node_id=name, session=f"C.n{ordinal}", host="h", port=1, ordinal=ordinal, **more)


def test_it_follows_what_changes_and_tells_the_next_directory() -> None:
    directory, mirror = DirectoryService(), Mirror()
    join(directory, "a", 0)
    join(directory, "b", 1)
    called(directory, "place", partition="p", ordinal=0)
    called(directory, "place", partition="q", ordinal=1)
    mirror.take(directory.news(mirror.seen))
    assert (list(mirror.places), mirror.roles) == ([0, 1], {"p": Role(0), "q": Role(1)})
    assert mirror.is_elsewhere("p", 1)
    assert not mirror.is_elsewhere("p", 0)
    assert not mirror.is_elsewhere("other", 0)
    called(directory, "forget", partition="p")
    called(directory, "declare", partition="q", role=[1, 0, 3])
    places = mirror.places
    mirror.take(directory.news(mirror.seen))
    assert (mirror.places, mirror.roles) == (places, {"q": Role(1, 0, 3)})
    assert directory.news(mirror.seen)[5] == {}
    again = DirectoryService(again=True)
    join(again, "a", 0, incarnation=1, known=mirror.told())
    told = Mirror()
    told.take(again.news(mirror.seen))
    assert ([*told.places], told.roles) == ([0, 1], mirror.roles)
    assert again.is_told("b")
    assert not again.is_told("a")
    join(again, "b", 1, incarnation=1)
    assert again.is_told("a")


def test_what_is_no_answer_is_refused() -> None:
    for odd in (None, [1, 2, None, 3, True], [1, 2, [[0, "h"]], 3, True, {}], [1, 2, None, 3, True, {"p": [0]}]):
        with pytest.raises(CorruptSegmentError, match=r"directory|place of a node"):
            Mirror().take(odd)
