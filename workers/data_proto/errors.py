"""What goes wrong with a `DataProto`. Programs written for one catch these as AssertionError."""

from __future__ import annotations

from transferqueue.errors import SchemaMismatchError


class DataProtoError(SchemaMismatchError, AssertionError):
    """Parts of a `DataProto` that do not fit each other, or what was asked of it; also an AssertionError."""


class DataProtoKeyError(DataProtoError, KeyError):
    """A name that a `DataProto` does not hold: `fields`; also a KeyError."""
