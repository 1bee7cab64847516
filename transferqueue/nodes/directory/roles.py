"""Home, standby and epoch of every partition, and which of them changed when."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace

from transferqueue.nodes.directory.role import Role

NOBODY = Role(None)


class Roles:
    """No lock of its own.

    Attributes:
        version: grows with every change.
    """

    def __init__(self) -> None:
        self.version = 0
        # Those that have a home, in the order in which they got it; of others those that an epoch is known of.
        self._roles: dict[str, Role] = {}
        self._followed: set[str] = set()
        self._changed: OrderedDict[str, int] = OrderedDict()  # the latest change last; forgotten ones too
        self._hearsay: set[str] = set()
        self._spoken: dict[str, int] = {}  # the epoch of the home that was heard itself

    def of(self, partition: str) -> Role:
        """Its role; `NOBODY`'s for one that is not known."""
        return self._roles.get(partition, NOBODY)

    def homes(self) -> dict[str, int]:
        """Partition -> ordinal of its home, in the order in which they got one."""
        return {name: role.home for name, role in self._roles.items() if role.home is not None}

    def of_node(self, ordinal: int) -> dict[str, Role]:
        """By partition: those that the node is home or standby of."""
        return {name: role for name, role in self._roles.items() if ordinal in (role.home, role.standby)}

    def since(self, version: int) -> dict[str, Role]:
        """Those that changed after that version of this object."""
        found: dict[str, Role] = {}
        for name, at in reversed(self._changed.items()):
            if at <= version:
                break
            found[name] = self.of(name)
        return found

    def place(self, partition: str, ordinal: int) -> int:
        """That node is the home unless there is one; returns the home."""
        role = self.of(partition)
        if role.home is not None:
            return role.home
        self._set(partition, replace(role, home=ordinal))
        return ordinal

    def claim(self, partition: str, ordinal: int) -> bool:
        """A node that is here says that it is the home, and has not been told otherwise. Whether it is."""
        role = self.of(partition)
        if partition in self._hearsay and role.epoch == 0 and role.home != ordinal:
            self._set(partition, Role(ordinal))
        self._hearsay.discard(partition)
        return self.place(partition, ordinal) == ordinal

    def recall(self, roles: Mapping[str, Role]) -> None:
        """What a node remembers of what an earlier directory said. What is known better stays."""
        for partition, role in roles.items():
            known = self._roles.get(partition)
            if known is None or role.epoch > known.epoch:
                self._hearsay.add(partition)
                self._set(partition, role)

    def declare(self, partition: str, role: Role, *, is_home: bool) -> bool:
        """The home of an epoch, or who was its standby, says who follows it. False: somebody took its place, it has
        spoken itself, or this is nothing new."""
        known = self.of(partition)
        well = role.epoch > known.epoch or (role.epoch == known.epoch and known.home in (role.home, None))
        well = well and (is_home or self._spoken.get(partition, -1) < role.epoch)
        if well:
            self._hearsay.discard(partition)
            if is_home:
                self._spoken[partition] = role.epoch
        if not well or role.home is None or role == known:
            return False
        self._set(partition, role)
        return True

    def move(self, partition: str, ordinal: int) -> None:
        """Another home, whatever it was."""
        self._set(partition, Role(ordinal, None, self.of(partition).epoch))

    def forget(self, partition: str) -> bool:
        """It has no home from now on. Whether it had."""
        role = self.of(partition)
        self._set(partition, Role(None, None, role.epoch))
        self._spoken.pop(partition, None)
        return role.home is not None

    def promote(self, is_lost: Callable[[int], bool], is_alive: Callable[[int], bool]) -> None:
        """Standbys of lost homes take their places."""
        for partition in list(self._followed):
            role = self._roles[partition]
            if role.home is None or role.standby is None:
                continue
            if is_lost(role.home) and is_alive(role.standby):
                self._set(partition, Role(role.standby, None, role.epoch + 1))

    def followed_homes(self) -> set[int]:
        """Ordinals of the homes that have a standby."""
        return {home for name in self._followed if (home := self._roles[name].home) is not None}

    def _set(self, partition: str, role: Role) -> None:
        self.version += 1
        self._changed[partition] = self.version
        self._changed.move_to_end(partition)
        if role == NOBODY:
            self._roles.pop(partition, None)
        elif self.of(partition).home is None:
            self._roles.pop(partition, None)
            self._roles[partition] = role
        else:
            self._roles[partition] = role
        if role.standby is None:
            self._followed.discard(partition)
        else:
            self._followed.add(partition)
