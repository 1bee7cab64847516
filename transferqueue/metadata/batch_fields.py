"""The fields of a batch: what a `BatchMeta` answers about their types and row shapes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, cast

from transferqueue.errors import FieldNotReadyError, name_some
from transferqueue.metadata.batch_state import AnySchema, BatchState, checked_schemas
from transferqueue.metadata.field_schema import FieldSchema
from transferqueue.metadata.row_shapes import RowShapes, Shape, look_up_row_shapes
from transferqueue.metadata.schema_view import SchemaView

if TYPE_CHECKING:
    import torch
    from tensordict import TensorDictBase
    from typing_extensions import Self

    from transferqueue.metadata.batch_meta import BatchMeta


class BatchFields(BatchState):
    """Base of `BatchMeta`: its fields."""

    __slots__ = ()

    #: How the row shape of a 1-D column is shown.
    scalar_row_shape: ClassVar[Shape] = ()

    @property
    def field_names(self) -> list[str]:
        """Sorted."""
        return sorted(self._schemas)

    @property
    def field_schema(self) -> SchemaView:
        """Field -> its type, read-only; see `FieldView`. Assigning a mapping replaces all fields."""
        return SchemaView(cast("BatchMeta", self))

    @field_schema.setter
    def field_schema(self, schemas: Mapping[str, AnySchema]) -> None:
        self._schemas, self._row_shapes = checked_schemas(schemas, self.size)

    @property
    def schemas(self) -> Mapping[str, FieldSchema]:
        """Field -> `FieldSchema`, read-only, in the order in which the fields came."""
        return MappingProxyType(self._schemas)

    def schema_of(self, field_name: str) -> FieldSchema:
        try:
            return self._schemas[field_name]
        except KeyError:
            raise FieldNotReadyError(
                f"field {field_name!r} is not in this metadata, which has {name_some(self.field_names) or 'no fields'}",
                fields=(field_name,),
            ) from None

    def has_field(self, field_name: object) -> bool:
        return field_name in self._schemas

    def present_row_shape(self, field_name: str) -> Shape | None:
        """The row shape of a field as `field_schema` shows it; one that the program itself gave is shown as it is."""
        shape = self.schema_of(field_name).shape
        return self.scalar_row_shape if shape == () and field_name not in self._row_shapes else shape

    def known_row_shapes(self, field_name: str) -> RowShapes | None:
        """The shapes row by row where this object holds them, else `None` (they are in the index)."""
        return self._row_shapes.get(field_name)

    def get_dtypes(self, field_name: str) -> list[torch.dtype | None]:
        """The dtype of each row. `KeyError` for an unknown field."""
        return [self.schema_of(field_name).torch_dtype] * self.size

    def get_shapes(self, field_name: str) -> list[Shape | None]:
        """The shape of each row; reads the index for a nested field whose shapes are not held here.

        Raises `KeyError` for an unknown field.
        """
        schema = self.schema_of(field_name)
        known = self._row_shapes.get(field_name)
        if known is not None and schema.shape != ():
            return [self.scalar_row_shape if shape == () else shape for shape in known.tolist()]
        if schema.is_nested:
            return list(look_up_row_shapes(cast("BatchMeta", self), field_name))
        return [self.present_row_shape(field_name)] * self.size

    def add_fields(self, tensor_dict: TensorDictBase, set_all_ready: bool = True) -> Self:
        """Adds the fields of a TensorDict of `size` rows to this batch, in place; returns the batch.

        A TensorDict without rows or fields changes nothing. Raises `ValueError` on another number of rows.
        """
        from transferqueue.metadata.tensordict_schema import schema_of_tensordict

        if not tensor_dict.batch_size:
            raise ValueError("add_fields: the TensorDict has no batch dimension")
        rows = int(tensor_dict.batch_size[0])
        if rows == 0:
            return self
        if rows != self.size:
            raise ValueError(f"add_fields: a TensorDict of {rows} rows does not match metadata of {self.size} rows")
        schemas, row_shapes = schema_of_tensordict(tensor_dict)
        self.add_schema(schemas, set_all_ready=set_all_ready and bool(schemas))
        self._row_shapes.update(row_shapes)
        return self

    def add_schema(self, schemas: Mapping[str, AnySchema], set_all_ready: bool = True) -> Self:
        """Adds or replaces fields, in place; returns the batch."""
        new, row_shapes = checked_schemas(schemas, self.size)
        self._schemas.update(new)
        for name in new:
            self._row_shapes.pop(name, None)
        self._row_shapes.update(row_shapes)
        if set_all_ready:
            if self._status is None:
                self._status_fill = 1
            else:
                self._status[:] = 1
        return self
