"""Finding what only pickle keeps, before anybody could read it: unpickling runs code of whoever wrote the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch.utils import dlpack

from transferqueue.codec.schema import OBJECTS, read_schema
from transferqueue.errors import PickleNotAllowedError
from transferqueue.samplers.states import needs_pickle
from transferqueue.tag_maps import TagDecoder

if TYPE_CHECKING:
    from transferqueue import _native

_PICKLE = 1  # `packed_rows`: the kind that each row of form OBJECTS begins with


def refuse_pickled_tables(session: _native.SavedSession, directory: str) -> None:
    """Tags and the states of samplers.

    Raises:
        PickleNotAllowedError: there are some that are pickled. ValueError: tags that are none.
    """
    if any(needs_pickle(state) for _, _, state, _ in session.tasks):
        raise _refused(directory, "the states of samplers")
    decoder = TagDecoder(allow_pickle=False)
    raw, ends = session.tags
    blob, start = raw.tobytes(), 0
    for end in ends.tolist():
        try:
            decoder.decode(blob[start:end])
        except PickleNotAllowedError as error:
            raise _refused(directory, "tags") from error
        start = end


def refuse_pickled_rows(session: _native.SavedSession, reservations: list[_native.Reservation], directory: str) -> None:
    """Rows of Python objects, by what each row says itself: its bytes are in `reservations`.

    Raises:
        PickleNotAllowedError: there are some that are pickled.
    """
    table, (raw_names, name_ends), (raw_schemas, schema_ends) = session.fields
    names, schemas = raw_names.tobytes(), raw_schemas.tobytes()
    at = 0
    for block, (_, rows, _, n_fields, _) in enumerate(session.blocks.tolist()):
        for field in range(at, at + n_fields):
            start, end = (int(schema_ends[field - 1]) if field else 0), int(schema_ends[field])
            if read_schema(schemas[start:end]).form != OBJECTS:
                continue
            _, data_offset, data_nbytes, _, offsets_offset = table[field].tolist()
            offsets = _bytes(reservations[block], offsets_offset, (rows + 1) * 8).view(np.int64)
            data = _bytes(reservations[block], data_offset, data_nbytes)
            starts = offsets[:-1]
            fits = (starts >= 0) & (starts + 4 <= data_nbytes)
            kinds = data[starts[fits][:, None] + np.arange(4)].reshape(-1, 4).copy().view(np.uint32)
            if (kinds == _PICKLE).any() or not fits.all():
                name = names[(int(name_ends[field - 1]) if field else 0) : int(name_ends[field])].decode()
                raise _refused(directory, f"rows of field {name!r}")
        at += n_fields


def _bytes(reservation: _native.Reservation, offset: int, nbytes: int) -> np.ndarray:
    if not nbytes:
        return np.zeros(0, np.uint8)
    return dlpack.from_dlpack(reservation.writable(offset, nbytes)).numpy()


def _refused(directory: str, what: str) -> PickleNotAllowedError:
    return PickleNotAllowedError(
        f"{what} in {directory} need pickle, and unpickling runs code of whoever wrote them. If you trust the writer "
        "of this checkpoint, load it with allow_pickle=True (in the call, or as TRANSFERQUEUE_ALLOW_PICKLE=true)",
        field=None,
    )
