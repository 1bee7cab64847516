"""One rank that is several workers."""

from __future__ import annotations

import contextlib
import logging
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar

from transferqueue.controller.colocated.errors import RoleNotFoundError
from transferqueue.workers.arguments import value_for_rank
from transferqueue.workers.worker import Worker

logger = logging.getLogger("transferqueue.colocated")

RoleArguments = Mapping[str, tuple[Sequence[Any], Mapping[str, Any]]]
"""Of each role the positional and keyword arguments of its constructor."""


class ColocatedWorker(Worker):
    """Holds a worker of each role, built in their order. What `create_colocated_worker_cls` makes is a subclass, with
    the methods of the roles as methods of its own (see `role_routes`).

    All roles are in one process: they have the same rank, sizes and master address, the same devices, and they run
    one at a time unless their methods are coroutines. Each has the others in ``self.fused_worker_dict``, by name.

    A role whose constructor raises does not take the others with it: each call on it raises that error.

    Args:
        role_arguments: of each role ``(args, kwargs)`` of its constructor; a `PerRank` among them counts by rank.
        args, kwargs: as for `Worker`.
    """

    raw_cls_dict: ClassVar[Mapping[str, type]] = {}
    default_role_arguments: ClassVar[RoleArguments] = {}

    def __init__(self, *args: Any, role_arguments: RoleArguments | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        arguments = self.default_role_arguments if role_arguments is None else role_arguments
        self.cls_names = list(self.raw_cls_dict)
        self.worker_dict: dict[str, Any] = {}
        self.fused_worker_dict = self.worker_dict
        self._role_errors: dict[str, tuple[Exception, TracebackType | None]] = {}
        for role, role_class in self.raw_cls_dict.items():
            self._build(role, role_class, *arguments.get(role, ((), {})))
        for worker in self.worker_dict.values():
            # Only now: the constructor of `Worker` sets an empty one.
            worker.fused_worker_dict = self.worker_dict

    def worker_of(self, role: str) -> Any:
        """The worker of a role. Raises what its constructor raised, `RoleNotFoundError` where there is no such role."""
        if role in self.worker_dict:
            return self.worker_dict[role]
        if role in self._role_errors:
            error, first = self._role_errors[role]
            raise error.with_traceback(first)  # else it would grow from call to call
        raise RoleNotFoundError.of(role, self.raw_cls_dict)

    def _build(self, role: str, role_class: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        mine = [value_for_rank(value, self.rank) for value in args]
        named = {name: value_for_rank(value, self.rank) for name, value in kwargs.items()}
        try:
            with _inside_another_worker():
                worker = self.worker_dict[role] = role_class(*mine, **named)
                if isinstance(worker, Worker):
                    worker.rank_info  # noqa: B018  (read and kept while the environment is known to be this rank's)
        except Exception as error:
            logger.exception("rank %d: the constructor of role %r (%s) raised", self.rank, role, role_class.__name__)
            # What the failed constructor had made, a model perhaps, would live as long as the error.
            traceback.clear_frames(error.__traceback__)
            self._role_errors[role] = error, error.__traceback__


@contextlib.contextmanager
def _inside_another_worker() -> Iterator[None]:
    """Tells the constructor of `Worker` that the process is set up for its rank already."""
    before = os.environ.get("DISABLE_WORKER_INIT")
    os.environ["DISABLE_WORKER_INIT"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["DISABLE_WORKER_INIT"]
        else:
            os.environ["DISABLE_WORKER_INIT"] = before
