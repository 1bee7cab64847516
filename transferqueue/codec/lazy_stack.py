"""A NonTensorStack whose members are made when somebody needs them.

Building a NonTensorStack of 512 strings costs 0.5 to 1.2 ms, thirty times what decoding them does, and most readers
only take the list (``td["uid"]``). A `LazyStack` holds the values, answers that by itself, and at any other use
*becomes* the NonTensorStack that would have been built: its class changes, so there is no second implementation of
what tensordict does, in any version of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tensordict import NonTensorData, NonTensorStack

try:
    from tensordict.utils import LinkedList
except ImportError:  # tensordict < 0.9 returns a plain list
    LinkedList = None

_VALUES = "_transferqueue_values"
_READ = "_transferqueue_read"
# Special methods that work on the object as it is, or that make it.
_KEPT = frozenset(
    (
        *("__new__", "__init__", "__class__", "__init_subclass__", "__subclasshook__", "__class_getitem__"),
        *("__getattribute__", "__getattr__", "__setattr__", "__delattr__", "__dict__", "__weakref__", "__slots__"),
        *("__doc__", "__module__", "__annotations__", "__abstractmethods__", "__orig_bases__", "__parameters__"),
        *("__torch_function__", "__hash__"),
    )
)


def lazy_stack(values: list[Any] | None, n_rows: int, read: Callable[[], list[Any]] | None = None) -> Any:
    """A NonTensorStack of `n_rows` values: given, or returned by `read` when first needed."""
    state = _state_of_a_stack()
    if n_rows == 0 or state is None:
        return eager_stack(values if values is not None else read() if read is not None else [])
    stack = LazyStack.__new__(LazyStack)
    inside = object.__getattribute__(stack, "__dict__")
    inside.update(state)
    inside["_batch_size"] = type(state["_batch_size"])((n_rows,))
    if values is not None:
        inside[_VALUES] = values
    else:
        inside[_READ] = read
    return stack


def eager_stack(values: list[Any]) -> Any:
    """The NonTensorStack of those rows (each a value of its own, lists included)."""
    if not values:
        return NonTensorStack()
    if all(type(value) is str for value in values):
        return NonTensorStack(*values)  # tensordict has a fast path for these
    return NonTensorStack(*[NonTensorData(data=value) for value in values])


@lru_cache(maxsize=1)
def _state_of_a_stack() -> dict[str, Any] | None:
    """Attributes of a fresh stack without its members, as this version of tensordict has them."""
    state = dict(vars(NonTensorStack(NonTensorData(data=None))))
    members = state.pop("tensordicts", None)
    return state if isinstance(members, list) and "_batch_size" in state else None


def _values(stack: Any) -> list[Any]:
    # Two threads may be here at once, and one of them may be making the members: setdefault decides whose values
    # stay, and what the other one has taken away is found in the members.
    inside = object.__getattribute__(stack, "__dict__")
    values: list[Any] | None = inside.get(_VALUES)
    if values is None:
        read = inside.get(_READ)
        values = inside.setdefault(_VALUES, read()) if read is not None else inside.get(_VALUES)
        inside.pop(_READ, None)
    return values if values is not None else [member.data for member in inside["tensordicts"]]


def _become_a_stack(stack: Any) -> Any:
    inside = object.__getattribute__(stack, "__dict__")
    if "tensordicts" not in inside:
        inside.setdefault("tensordicts", eager_stack(_values(stack)).tensordicts)
    object.__setattr__(stack, "__class__", NonTensorStack)
    inside.pop(_VALUES, None)
    return stack


class LazyStack(NonTensorStack):
    """See the module. ``type(x) is NonTensorStack`` holds from the first use that is not `tolist` or the sizes."""

    def __getattribute__(self, name: str) -> Any:
        if name in _SERVED:
            return object.__getattribute__(self, name)
        if name == "__class__":
            return LazyStack
        return getattr(_become_a_stack(self), name)

    def tolist(self, **options: Any) -> list[Any]:
        """The values, a new list; with ``as_linked_list`` (tensordict >= 0.9) one that writes through to the stack."""
        values = list(_values(self))
        return LinkedList(values, td=self) if options.get("as_linked_list") and LinkedList is not None else values


_SERVED = frozenset(("tolist", "batch_size", "_batch_size", "stack_dim", "_is_non_tensor", "_is_tensorclass"))


def _forwarding(name: str) -> Any:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(NonTensorStack, name)(_become_a_stack(self), *args, **kwargs)

    forward.__name__ = name
    return forward


for _name in dir(NonTensorStack):
    _special = _name.startswith("__") and _name.endswith("__") and _name not in _KEPT
    if _special and callable(getattr(NonTensorStack, _name)):
        setattr(LazyStack, _name, _forwarding(_name))
