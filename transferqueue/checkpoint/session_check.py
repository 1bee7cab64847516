"""What a session's tables must be beyond what the index checks when it takes them: later calls would trip over it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from transferqueue import _native
from transferqueue.codec.schema import DENSE, NUMPY, STUB, read_schema
from transferqueue.errors import CorruptSegmentError
from transferqueue.samplers.states import decode_state, needs_pickle
from transferqueue.tag_maps import PICKLE_EXTENSION, TagDecoder

Strings = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


def check_names(session: _native.SavedSession) -> None:
    """Names that a client refuses, too: nobody could ask for such a partition or field, or clear it.

    Raises:
        ValueError: a NUL in a name of a partition or of a field that it had.
    """
    for name, fields in zip(session.partitions, session.known_fields, strict=True):
        for kind, text in (("partition", name), *(("field", field) for field in fields)):
            if "\0" in text:
                raise ValueError(f"{text[:80]!r} is no name of a {kind}: it holds NUL characters")


def check_fields(session: _native.SavedSession, *, stubs: bool = False) -> None:
    """Whether each field lies in its block as its schema says, and has a name that can be asked for.

    Args:
        stubs: whether payload may be elsewhere.

    Raises:
        ValueError: one does not. LayoutMismatchError: a schema of another version.
    """
    table, names, schemas = session.fields
    if (names[0] == 0).any():
        raise ValueError("a name of a field holds NUL characters")
    kind_of: dict[bytes, int] = {}
    for kind, raw in zip(table[:, 0].tolist(), _each(schemas), strict=True):
        expected = kind_of.get(raw)
        if expected is None:
            try:
                form = read_schema(raw).form
            except CorruptSegmentError as error:
                raise ValueError(str(error)) from None
            if form == STUB and not stubs:
                raise ValueError("rows whose payload is elsewhere")
            expected = kind_of[raw] = _native.DENSE if form in (DENSE, NUMPY, STUB) else _native.RAGGED
        if kind != expected:
            raise ValueError(f"a field of kind {kind}, whose schema says {expected}")


def check_tags(session: _native.SavedSession) -> None:
    """Whether all tags can be read. Pickles in them are not opened.

    Raises:
        ValueError: some cannot.
    """
    if not session.tags[0].size:
        return
    decoder = _TagCheck()
    # Rows of a batch mostly have the same tags.
    for blob in set(_each(session.tags)):
        try:
            names = list(decoder.decode(blob))
        except CorruptSegmentError as error:
            raise ValueError(str(error)) from None
        if blob and (int.from_bytes(blob[:4], "little") != len(names) or names != sorted(names, key=str.encode)):
            raise ValueError("a tag map whose names are not in order, or with one twice")


def check_states(session: _native.SavedSession) -> None:
    """Whether the states of samplers that need no pickle can be read.

    Raises:
        ValueError: one cannot.
    """
    for _, _, state, _ in session.tasks:
        if state and not needs_pickle(state):
            try:
                decode_state(state, allow_pickle=False)
            except CorruptSegmentError as error:
                raise ValueError(str(error)) from None


class _TagCheck(TagDecoder):
    def _extension(self, code: int, data: memoryview) -> None:
        if code != PICKLE_EXTENSION:
            super()._extension(code, data)


def _each(strings: Strings) -> Iterator[bytes]:
    raw, ends = strings
    blob, start = raw.tobytes(), 0
    for end in ends.tolist():
        yield blob[start:end]
        start = end
