"""Modes that are not there, arguments that cannot be spread, outputs that cannot be joined, ranks not set up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from transferqueue.errors import SchemaMismatchError, TransferQueueError


class DispatchError(TransferQueueError, ValueError, TypeError, AssertionError):
    """A call whose arguments a dispatch mode cannot spread. Nothing was sent to the ranks.

    `argument` is the name of the argument (its position, before the method that was called is known), `problem` what
    is wrong with it. Also the built-in errors that programs catch where arguments are only asserted.
    """

    _declared: ClassVar[Mapping[str, Any]] = {"argument": None, "problem": "", "method": None}
    argument: int | str | None
    problem: str
    method: str | None

    @classmethod
    def about(cls, argument: int | str, problem: str) -> DispatchError:
        """The error for one argument, given by position or by name."""
        return cls(f"{_label(argument)} {problem}", argument=argument, problem=problem)

    def named(self, method: str, parameters: Sequence[str]) -> DispatchError:
        """The same with the method's name, and the parameter's name where there was a position."""
        if self.argument is None:
            return type(self)(f"{method}: {self.message}", **{**self.details, "method": method})
        argument = self.argument
        if isinstance(argument, int) and argument < len(parameters):
            argument = parameters[argument]
        return type(self)(
            f"{method}: {_label(argument)} {self.problem}",
            **{**self.details, "argument": argument, "method": method},
        )


class UnknownModeError(TransferQueueError, ValueError, KeyError, AssertionError):
    """What is no dispatch or execute mode, or one whose functions are in another process: `mode`, and the `known`."""

    _declared: ClassVar[Mapping[str, Any]] = {"mode": None, "known": ()}
    mode: Any
    known: tuple[str, ...]


class DispatchRefusedError(DispatchError, NotImplementedError):
    """A dispatch mode that no call on a group can have."""


class OutputMismatchError(SchemaMismatchError, TypeError, AssertionError):
    """Ranks returned outputs that have nothing in common to be joined by: `found`, their types by rank."""


def _label(argument: int | str) -> str:
    return f"argument {argument}" if isinstance(argument, int) else f"argument {argument!r}"


class MeshNotRegisteredError(TransferQueueError, KeyError, AssertionError):
    """A mesh that this rank did not register: `mesh_name`, and those that it did in `registered`."""

    _declared: ClassVar[Mapping[str, Any]] = {"mesh_name": None, "registered": ()}
    mesh_name: str | None
    registered: tuple[str, ...]


class MeshRegisteredError(TransferQueueError, ValueError, AssertionError):
    """A mesh that this rank registered before: `mesh_name`, `registered`."""

    _declared: ClassVar[Mapping[str, Any]] = {"mesh_name": None, "registered": ()}
    mesh_name: str | None
    registered: tuple[str, ...]


class DeviceVisibilityError(TransferQueueError, ValueError, AssertionError):
    """Environment variables that disagree about the devices of this process: `variables` maps each to its value."""

    _declared: ClassVar[Mapping[str, Any]] = {"variables": {}}
    variables: Mapping[str, str]


class BackendNotAvailableError(TransferQueueError, ValueError):
    """A backend of collectives that this machine or this build of torch has not: `backend`, `device`."""

    _declared: ClassVar[Mapping[str, Any]] = {"backend": None, "device": None}
    backend: str | None
    device: str | None


class NoFreePortError(TransferQueueError, OSError):
    """Every port of a range is taken: `first` and `last` (both inclusive)."""

    _declared: ClassVar[Mapping[str, Any]] = {"first": None, "last": None}
    first: int | None
    last: int | None
