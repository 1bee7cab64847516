"""The controller in this process or in a Ray actor: the same events either way."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from transferqueue.controller import remove_orphaned_pools

Training = Callable[[Any], Generator[Any, None, None]]
"""From a configuration to the events of its run. A function of a module: it travels to the actor by its name."""


class ControllerActor:
    """The controller as a Ray actor; its events stream to the driver."""

    def run(self, training: Training, config: Any) -> Iterator[Any]:
        """The events of the run."""
        yield from training(config)


def events_of(training: Training, config: Any, controller: str) -> Generator[Any, None, None]:
    """Runs `training(config)` where `controller` says: "driver" is this process, "actor" a Ray actor.

    When that actor dies its ranks end with it and the session is removed; what it had reserved is given back here, and
    Ray's error raised: the program may go on and start another.
    """
    if controller == "driver":
        yield from training(config)
        return
    import ray

    actor: Any = ray.remote(ControllerActor).remote()
    try:
        for reference in actor.run.options(num_returns="streaming").remote(training, config):
            yield ray.get(reference)
    except ray.exceptions.RayActorError:
        remove_orphaned_pools()
        raise
