"""The names of a group's actors in their Ray cluster."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import Any

from transferqueue.controller.errors import DetachedWorkersNotFoundError
from transferqueue.controller.pools.rank_place import RankPlace
from transferqueue.errors import name_some
from transferqueue.logs import get_logger
from transferqueue.workers.ray_runtime import require_ray

_NAMESPACE = "transferqueue"

logger = get_logger("controller.actors")


def new_prefix() -> str:
    """The name prefix of a group that was given none; unlike any other."""
    return f"tq{uuid.uuid4().hex[:8]}"


def namespace_for(detached: bool) -> str:
    """Where the actors of a group have their names: the program's namespace; of a detached group, which others are to
    find, the fixed one ``transferqueue`` when the program named none."""
    own: str = require_ray("RayWorkerGroup").get_runtime_context().namespace
    try:
        uuid.UUID(own)  # what Ray makes up for a program that names none
    except ValueError:
        return own
    return _NAMESPACE if detached else own


def actor_names(prefix: str, class_name: str, places: Sequence[RankPlace], namespace: str) -> list[str]:
    """``<prefix><class>_<placement group>:<rank in it>``, both counted within the group.

    Where an actor has one of these names already (that of an earlier run which left it behind, or which has not ended
    yet), the prefix gets a unique ending, so that a run starts whatever is there.
    """
    ray = require_ray("RayWorkerGroup")
    names = _names(prefix, class_name, places)
    living = ray.util.list_named_actors(all_namespaces=True)
    taken = {entry["name"] for entry in living if entry["namespace"] == namespace} & set(names)
    if taken:
        other = f"{prefix}{uuid.uuid4().hex[:6]}_"
        logger.warning(
            "actors of another run have the names %s: those of this group begin with %r",
            name_some(sorted(taken)),
            other,
        )
        names = _names(other, class_name, places)
    return names


def find_actors(names: Sequence[str], namespace: str | None) -> list[Any]:
    """The handles of living actors, in the order of `names`; looked for in `namespace`, or, when that is None, in this
    program's own and then in all: a program that names none has one that no other program knows.

    Raises `DetachedWorkersNotFoundError` naming those that are not there, `ValueError` for one that is in several.
    """
    ray = require_ray("RayWorkerGroup")
    own = ray.get_runtime_context().namespace if namespace is None else namespace
    spaces_of: dict[str, list[str]] = {}
    for entry in ray.util.list_named_actors(all_namespaces=True):
        spaces_of.setdefault(entry["name"], []).append(entry["namespace"])
    missing = [name for name in names if not _spaces(spaces_of, name, own, namespace)]
    if missing:
        raise DetachedWorkersNotFoundError(
            f"no living actor is called {name_some(missing)}"
            f"{'' if namespace is None else f' in namespace {namespace!r}'}; named actors of the cluster: "
            f"{name_some(sorted(spaces_of)) or 'none'}. An actor outlives its program when its group was made with "
            "detached=True",
            missing=tuple(missing),
        )
    handles = []
    for name in names:
        spaces = _spaces(spaces_of, name, own, namespace)
        if len(spaces) > 1:
            raise ValueError(f"actors called {name!r} are in the namespaces {sorted(spaces)}: say namespace=...")
        handles.append(ray.get_actor(name, spaces[0]))
    return handles


def names_with_prefix(prefix: str, class_name: str | None, namespace: str | None) -> list[str]:
    """The names of living actors as `actor_names` makes them of this prefix and class (None: of any), in rank order.

    Raises `DetachedWorkersNotFoundError` when there are none, `ValueError` when they are of more than one group.
    """
    ray = require_ray("RayWorkerGroup")
    pattern = re.compile(f"{re.escape(prefix)}({class_name or '.+'})_([0-9]+):([0-9]+)")
    placed: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
    for entry in ray.util.list_named_actors(all_namespaces=True):
        match = pattern.fullmatch(entry["name"])
        if match and namespace in (None, entry["namespace"]):
            group = placed.setdefault((match.group(1), entry["namespace"]), {})
            group[entry["name"]] = (int(match.group(2)), int(match.group(3)))
    if not placed:
        raise DetachedWorkersNotFoundError(
            f"no living actor has a name of prefix {prefix!r}; worker_names=[...] names them", missing=(prefix,)
        )
    if len(placed) > 1:
        of = ", ".join(f"{prefix}{kind} in namespace {space!r}" for kind, space in sorted(placed))
        raise ValueError(f"prefix {prefix!r} is that of several groups ({of}): say worker_names=[...]")
    (group,) = placed.values()
    return sorted(group, key=group.__getitem__)


def _names(prefix: str, class_name: str, places: Sequence[RankPlace]) -> list[str]:
    entries: dict[Any, int] = {}
    counts: dict[Any, int] = {}
    names = []
    for place in places:
        entry = entries.setdefault(place.placement_group, len(entries))
        number = counts[entry] = counts.get(entry, -1) + 1
        names.append(f"{prefix}{class_name}_{entry}:{number}")
    return names


def _spaces(spaces_of: dict[str, list[str]], name: str, own: str, namespace: str | None) -> list[str]:
    spaces = spaces_of.get(name, [])
    if own in spaces:
        return [own]
    return spaces if namespace is None else []
