"""``meta.field_schema``: the field types of a batch as read-only mappings of mappings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from transferqueue.metadata.row_shapes import RowShapes, Shape, look_up_row_shapes

if TYPE_CHECKING:
    from transferqueue.metadata.batch_meta import BatchMeta

_NAMES = ("dtype", "shape", "is_nested", "is_non_tensor")
_ROW_SHAPES = "per_sample_shapes"


class FieldView(Mapping[str, Any]):
    """One field of a batch: `dtype` (torch dtype), `shape` (of one row), `is_nested`, `is_non_tensor`.

    A nested field also answers `per_sample_shapes`, one shape per row. Where these stand only in the index, asking
    for them reads it; iterating over the entries does not, and then leaves that entry out.
    """

    __slots__ = ("_meta", "_name")

    def __init__(self, meta: BatchMeta, name: str) -> None:
        self._meta = meta
        self._name = name

    def __getitem__(self, entry: str) -> Any:
        schema = self._meta.schema_of(self._name)
        if entry == "dtype":
            return schema.torch_dtype
        if entry == "shape":
            return self._meta.present_row_shape(self._name)
        if entry == _ROW_SHAPES and (schema.is_nested or self._known() is not None):
            return self._meta.get_shapes(self._name)
        if entry in ("is_nested", "is_non_tensor"):
            return getattr(schema, entry)
        raise KeyError(entry)

    def __contains__(self, entry: object) -> bool:
        if entry == _ROW_SHAPES:
            return self._meta.schema_of(self._name).is_nested or self._known() is not None
        return entry in _NAMES

    def __iter__(self) -> Iterator[str]:
        yield from _NAMES
        if self._known() is not None:
            yield _ROW_SHAPES

    def __len__(self) -> int:
        return len(_NAMES) + (self._known() is not None)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def _known(self) -> RowShapes | None:
        # Those of scalars say only that the program gave the shape itself.
        given = self._meta.schema_of(self._name).shape == ()
        return None if given else self._meta.known_row_shapes(self._name)


class SchemaView(Mapping[str, FieldView]):
    """All fields of a batch, in the order in which they came; it follows the batch."""

    __slots__ = ("_meta",)

    def __init__(self, meta: BatchMeta) -> None:
        self._meta = meta

    def __getitem__(self, name: str) -> FieldView:
        self._meta.schema_of(name)
        return FieldView(self._meta, name)

    def __contains__(self, name: object) -> bool:
        return self._meta.has_field(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._meta.schemas)

    def __len__(self) -> int:
        return len(self._meta.schemas)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, dict[str, Any]]:
        return {name: dict(field) for name, field in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.__deepcopy__({}),)

    def row(self, position: int) -> dict[str, dict[str, Any]]:
        """The schema of one row: `shape` is that row's own, and there is no `per_sample_shapes`."""
        fields: dict[str, dict[str, Any]] = {}
        for name, schema in self._meta.schemas.items():
            fields[name] = {entry: self[name][entry] for entry in _NAMES}
            known = self._meta.known_row_shapes(name)
            if known is not None:
                fields[name]["shape"] = known.row(position)
            elif schema.is_nested:
                fields[name]["shape"] = _one_shape(self._meta, name, position)
        return fields


def _one_shape(meta: BatchMeta, name: str, position: int) -> Shape:
    return look_up_row_shapes(meta[position], name)[0]
