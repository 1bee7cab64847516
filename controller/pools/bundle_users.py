"""Which worker groups run in which bundles of a reservation."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable


class BundleUsers:
    """Worker groups by the bundles that they run in; one that the program drops is forgotten.

    Args:
        on_empty: called when the last user is gone. May run inside the garbage collector.
    """

    def __init__(self, on_empty: Callable[[], None]) -> None:
        self._on_empty = on_empty
        # All changes are single operations on dicts: a user may be forgotten at any allocation of any thread.
        self._names: dict[int, str] = {}
        self._bundles: dict[int, frozenset[int]] = {}
        self._references: dict[int, weakref.ref[object]] = {}

    def add(self, user: object, name: str, bundles: Iterable[int]) -> None:
        """`user` runs in `bundles`, further to those that it runs in already."""
        key, mine = id(user), weakref.ref(self)

        def forget(_: object) -> None:
            users = mine()
            if users is not None:
                users._forget(key)

        self._references[key] = weakref.ref(user, forget)
        self._names[key] = name
        self._bundles[key] = self._bundles.get(key, frozenset()) | frozenset(bundles)

    def remove(self, user: object) -> None:
        """`user` is gone. Idempotent."""
        self._forget(id(user))

    def of(self, bundle: int, but: object = None) -> list[str]:
        """The names of those who run in one bundle, `but` left out; first come first."""
        keys = [key for key, bundles in list(self._bundles.items()) if bundle in bundles and key != id(but)]
        return [self._names[key] for key in keys if key in self._names]

    def __len__(self) -> int:
        return len(self._bundles)

    def _forget(self, key: int) -> None:
        self._references.pop(key, None)
        self._names.pop(key, None)
        if self._bundles.pop(key, None) is not None and not self._bundles:
            self._on_empty()
