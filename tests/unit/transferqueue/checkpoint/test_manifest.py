from __future__ import annotations

from typing import Any

import pytest

from transferqueue import CorruptSegmentError, LayoutMismatchError
from transferqueue.checkpoint.manifest import FILES, FileFacts, check_user_metadata, describe, parse_manifest

FACTS = {name: FileFacts(1, "00") for name in FILES}


def described(user_metadata: Any = None) -> bytes:
    return describe(
        session="s",
        earlier_sessions=["r"],
        storage_saved=True,
        next_row=0,
        rows=0,
        payload_nbytes=0,
        user_metadata=user_metadata,
        files=FACTS,
    ).encode()


@pytest.mark.parametrize("value", [None, True, 1.5, -(2**70), "ä\U0001f600\ud800", [1, [None]], {"a": {"b": []}}])
def test_what_was_given_is_given_back(value: Any) -> None:
    check_user_metadata(value)
    found = parse_manifest(described(value), "path", FILES)
    assert found.user_metadata == value
    assert (found.session, found.earlier_sessions, found.storage_saved) == ("s", ["r"], True)
    assert found.files == FACTS


@pytest.mark.parametrize("value", [{1: 2}, (1,), {"x": (1,)}, float("inf"), b"bytes", {1, 2}, object()])
def test_what_json_would_change_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="JSON"):
        check_user_metadata(value)


def test_endless_metadata_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="JSON"):
        check_user_metadata(endless)


def test_every_changed_byte_shows() -> None:
    raw = described({"step": 1})
    for position in range(len(raw)):
        changed = raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :]
        try:
            found = parse_manifest(changed, "path", FILES)
        except (CorruptSegmentError, LayoutMismatchError):
            continue
        assert found == parse_manifest(raw, "path", FILES)  # white space


def test_other_lists_of_files_are_refused() -> None:
    with pytest.raises(CorruptSegmentError, match="other files"):
        parse_manifest(described(), "path", FILES[:-1])
