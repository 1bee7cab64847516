"""Room that an actor reserved and that is nobody's since it died.

Ray gives a placement group back when the job that made it has ended; one that an actor made, when that actor is dead
*and* the job of the program that started it has ended. A program that goes on after its controller was killed would
find the room taken. So the name of a placement group says which actor made it.
"""

from __future__ import annotations

import re

from transferqueue.controller.actor_states import actor_table
from transferqueue.workers.ray_runtime import require_ray

_MADE_BY = re.compile(r"_by_([0-9a-f]+)$")


def with_maker(name: str) -> str:
    """The name for a placement group that this process makes; as it is outside of actors, whose end Ray sees itself."""
    ray = require_ray("RayResourcePool")
    # Asked for its context, a Ray that is not running would start.
    maker = ray.get_runtime_context().get_actor_id() if ray.is_initialized() else None
    return name if maker is None else f"{name}_by_{maker}"


def remove_orphaned_pools() -> list[str]:
    """Gives back the room that actors reserved for pools before they died; the names of the placement groups.

    Pools call it themselves while they wait for room. The room of detached pools is left alone.
    """
    ray = require_ray("remove_orphaned_pools")
    if not ray.is_initialized():
        return []
    util = ray.util
    made_by = {
        group["name"]: found.group(1)
        for group in util.placement_group_table().values()
        if group["state"] != "REMOVED" and (found := _MADE_BY.search(group["name"]))
    }
    if not made_by:
        return []
    actors = actor_table()
    orphans = [name for name, maker in made_by.items() if actors.get(maker, {}).get("State") in (None, "DEAD")]
    for name in orphans:
        util.remove_placement_group(util.get_placement_group(name))
    return orphans
