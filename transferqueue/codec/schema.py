"""What one put recorded about one field: the opaque `schema` bytes of a `FieldLayout`.

The bytes are equal for all puts of rows of one type, whatever their lengths, so that the index keeps them once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from transferqueue.codec.stub_schema import is_stub, payload_schema, read_stub
from transferqueue.errors import CorruptSegmentError, LayoutMismatchError, SchemaMismatchError

VERSION = 1
_MAX_ELEMENTS = 1 << 56
_MAX_RANK = 64  # of torch and numpy

# Forms: what the rows are handed out as.
DENSE = "dense"  # one tensor; native kind DENSE
JAGGED = "jagged"  # nested tensor, jagged layout; in memory each row has its ragged dimension first
STRIDED = "strided"  # nested tensor, strided layout; rows contiguous
STACK = "stack"  # one tensor per row, any shapes and dtypes
NUMPY = "numpy"  # fixed-width numpy values that torch has no dtype for; native kind DENSE
VALUES = "values"  # plain Python values, msgpack per row
OBJECTS = "objects"  # Python rows whose tensors and arrays lie beside their skeleton
STUB = "stub"  # names of rows whose payload lies on another node (`stub_schema`); never stored as a form

TENSOR_FORMS = frozenset({DENSE, JAGGED, STRIDED, STACK})
_FORMS = TENSOR_FORMS | {NUMPY, VALUES, OBJECTS}
# Rows of these forms say themselves what they are: two puts need not agree on anything to be read together.
_SELF_DESCRIBING = frozenset({STACK, VALUES, OBJECTS})


class BlockSchema(msgspec.Struct, frozen=True, array_like=True):
    """One field of one block.

    Attributes:
        form: one of the forms above.
        dtype: torch dtype name; for NUMPY the numpy dtype as text; None for Python values and mixed dtypes.
        shape: of one row; -1 where rows differ; None where they differ in rank, or have no shape.
        headers: each row begins with its own dtype and shape (`tensor_rows`).
        pickled: reading needs pickle, hence `allow_pickle`.
        path: keys of a field inside nested TensorDicts, outermost first; empty for a field of the batch itself.
        inner_batch: batch dimensions beyond the rows of each TensorDict on that path.
    """

    version: int
    form: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    headers: bool = False
    pickled: bool = False
    path: tuple[str, ...] = ()
    inner_batch: tuple[tuple[int, ...], ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for blocks whose rows can be read as one column without looking at them."""
        if self.form in _SELF_DESCRIBING:
            return (self.form,)
        if self.form == STUB:
            return (self.form, self.dtype)
        if self.form == STRIDED and self.headers:
            return (self.form, self.dtype, True, len(self.shape or ()))
        return (self.form, self.dtype, self.shape, self.headers)

    @property
    def ragged_dim(self) -> int:
        """Position of the row dimension whose size differs, within the shape of a row."""
        return self.shape.index(-1) if self.shape is not None and -1 in self.shape else 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BlockSchema)


@lru_cache(maxsize=4096)
def schema_bytes(
    form: str,
    dtype: str | None = None,
    shape: tuple[int, ...] | None = None,
    headers: bool = False,
    pickled: bool = False,
    path: tuple[str, ...] = (),
    inner_batch: tuple[tuple[int, ...], ...] = (),
) -> bytes:
    """The stored form of a schema; cached, since a training loop puts the same few types for ever."""
    return _encoder.encode(BlockSchema(VERSION, form, dtype, shape, headers, pickled, path, inner_batch))


@lru_cache(maxsize=4096)
def read_schema(raw: bytes) -> BlockSchema:
    """Reads `schema_bytes` back. `LayoutMismatchError` for another version, `CorruptSegmentError` for anything else.

    Of a stub: a schema of the form STUB, whose key is equal for stubs of one schema."""
    if is_stub(raw):
        read_stub(raw)
        return BlockSchema(VERSION, STUB, raw.hex())
    try:
        version = msgspec.msgpack.decode(raw)[0]
        if version != VERSION:
            raise LayoutMismatchError(
                f"a stored field has schema version {version!r}; this build reads {VERSION}",
                expected=VERSION,
                found=version,
            )
        schema = _decoder.decode(raw)
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError, RecursionError) as error:
        if isinstance(error, LayoutMismatchError):
            raise
        raise CorruptSegmentError(f"the schema of a stored field is unreadable: {error}") from error
    if schema.form not in _FORMS or not _is_shape(schema.shape or (), least=-1) or not _places(schema):
        raise CorruptSegmentError(f"the schema of a stored field contradicts itself: {schema}")
    if schema.form in (DENSE, NUMPY) and (schema.shape is None or schema.dtype is None or -1 in schema.shape):
        raise CorruptSegmentError(f"the schema of a stored field lacks dtype or shape: {schema}")
    return schema


def _is_shape(shape: tuple[int, ...], *, least: int) -> bool:
    """Whether it may be that of a row: products of its sizes, with an element's bytes, stay numbers of 64 bits."""
    elements = 1
    for size in shape:
        if not least <= size <= _MAX_ELEMENTS:
            return False
        elements *= max(size, 1)
    return elements <= _MAX_ELEMENTS and len(shape) <= _MAX_RANK


def _places(schema: BlockSchema) -> bool:
    """Whether the TensorDicts around the field can have the batch sizes that it says."""
    if len(schema.inner_batch) > len(schema.path) or not all(schema.path):
        return False
    for inner in schema.inner_batch:
        if not _is_shape(inner, least=0) or (schema.form == DENSE and (schema.shape or ())[: len(inner)] != inner):
            return False
    return True


def schema_dict(raw: bytes) -> dict[str, Any]:
    """The part of a stored schema that metadata carries: plain strings, ints and bools.

    Returns:
        ``dtype`` (torch dtype name, None for Python and numpy rows and where dtypes differ from row to row), ``shape``
        (of one row, list; -1 for a size that differs; None where rows have no shape or differ in rank), ``is_nested``
        (rows may differ in shape) and ``is_non_tensor``. Of a stub: what its payload is.
    """
    schema = read_schema(payload_schema(raw))
    tensors = schema.form in TENSOR_FORMS
    return {
        "dtype": schema.dtype if tensors else None,
        "shape": list(schema.shape) if tensors and schema.shape is not None else None,
        "is_nested": tensors and schema.form != DENSE,
        "is_non_tensor": not tensors,
    }


def check_name(name: Any) -> str:
    """A field name as given, or `SchemaMismatchError` (a ValueError) for what is none: not a str, empty, with NUL.

    NUL separates parts of names inside the index, and no terminal shows it.
    """
    if not isinstance(name, str):
        raise SchemaMismatchError(f"a field name must be a str, got {type(name).__name__} {name!r}", found=name)
    if not name or "\0" in name:
        raise SchemaMismatchError(
            f"a field name must not be empty or hold NUL characters, got {name[:80]!r}", fields=(name,)
        )
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise SchemaMismatchError(
                f"field name {name[:80]!r} holds a lone surrogate, which cannot be stored", fields=(name,)
            ) from None
    return name
