"""Names and numbers of dtypes, and which numpy dtypes are torch's."""

from __future__ import annotations

import ast
import sys
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from transferqueue.errors import CorruptSegmentError, LayoutMismatchError

# Position is the number stored in rows that describe themselves: append, never reorder.
_NAMES = (
    *("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool", "complex32", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
    *("bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"),
    *("int1", "int2", "int3", "int4", "int5", "int6", "int7"),
    *("uint1", "uint2", "uint3", "uint4", "uint5", "uint6", "uint7"),
)
_NUMBER_OF = {getattr(torch, name): number for number, name in enumerate(_NAMES) if hasattr(torch, name)}
_NAME_OF = {dtype: _NAMES[number] for dtype, number in _NUMBER_OF.items()}
_NUMPY_SHARED = frozenset(
    (
        *("float16", "float32", "float64", "bool", "complex64", "complex128"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)
# No copy kernel, but one byte per element: strided copies go through uint8.
_BYTES_ONLY = frozenset(
    dtype for dtype, name in _NAME_OF.items() if name.startswith(("int", "uint", "float4")) and dtype.itemsize == 1
)


_DLPACK_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5}  # of DLDataTypeCode
_DLPACK_BOOL = 6


class ElementType(NamedTuple):
    """An element in DLPack's words; `as_bytes`: as uint8, since DLPack 0.x has no name for the one-byte dtype."""

    code: int
    bits: int
    as_bytes: bool


@cache
def dlpack_type(dtype: torch.dtype) -> ElementType | None:
    """None for a dtype of several bytes that DLPack has no name for."""
    if dtype is torch.bool:
        return ElementType(_DLPACK_BOOL, 8, False)
    kind = name_of(dtype).rstrip("0123456789")
    if kind in _DLPACK_CODES and name_of(dtype) == f"{kind}{dtype.itemsize * 8}":
        return ElementType(_DLPACK_CODES[kind], dtype.itemsize * 8, False)
    return ElementType(_DLPACK_CODES["uint"], 8, True) if dtype.itemsize == 1 else None


def is_storable(dtype: torch.dtype) -> bool:
    """Whether rows of that dtype are plain bytes (quantized dtypes are not: their scale is not in the bytes)."""
    return dtype in _NUMBER_OF


def name_of(dtype: torch.dtype) -> str:
    """``"bfloat16"`` for `torch.bfloat16`."""
    return _NAME_OF[dtype]


def number_of(dtype: torch.dtype) -> int:
    return _NUMBER_OF[dtype]


@cache
def from_name(name: str) -> torch.dtype:
    """The dtype of that stored name; `LayoutMismatchError` where this torch lacks it."""
    found = getattr(torch, name, None) if name in _NAMES else None
    if not isinstance(found, torch.dtype):
        raise LayoutMismatchError(
            f"stored rows have dtype {name!r}, which torch {torch.__version__} does not know", found=name
        )
    return found


def from_number(number: int) -> torch.dtype:
    if not 0 <= number < len(_NAMES):
        raise CorruptSegmentError(f"a stored row names dtype number {number}; there are {len(_NAMES)}")
    return from_name(_NAMES[number])


def copies_as_bytes(dtype: torch.dtype) -> bool:
    """Whether a strided copy of that dtype must go through uint8 (same size per element)."""
    return dtype in _BYTES_ONLY


def torch_name_of_numpy(dtype: np.dtype[np.generic]) -> str | None:
    """The torch dtype's name of a numpy dtype with the same bytes; None where torch has none (text, dates, >i4)."""
    return dtype.name if dtype.isnative and dtype.names is None and dtype.name in _NUMPY_SHARED else None


def numpy_to_text(dtype: np.dtype[np.generic]) -> str:
    """A fixed-width numpy dtype, structured ones included, as text that `numpy_from_text` reads back."""
    return repr(np.lib.format.dtype_to_descr(dtype))


def is_text(values: np.ndarray[Any, Any]) -> bool:
    """Whether all text in an array of any dtype is characters; numpy takes 32 bits for one without a look."""
    if values.dtype.names is not None:
        return all(is_text(values[name]) for name in values.dtype.names)
    if values.dtype.kind != "U" or not values.size:
        return True
    codes = np.ascontiguousarray(values).view(np.dtype("u4").newbyteorder(values.dtype.byteorder))
    return bool(codes.max() <= sys.maxunicode)


@lru_cache(maxsize=256)
def numpy_from_text(text: str) -> np.dtype[np.generic]:
    try:
        # literal_eval: the text comes out of shared memory.
        dtype: np.dtype[np.generic] = np.lib.format.descr_to_dtype(ast.literal_eval(text))
    except (ValueError, TypeError, SyntaxError, LookupError, RecursionError, MemoryError) as error:
        raise CorruptSegmentError(f"a stored field has the unreadable numpy dtype {text[:80]!r}") from error
    if dtype.hasobject:
        raise CorruptSegmentError(f"a stored field has the numpy dtype {text[:80]!r}, which would hold pointers")
    return dtype
