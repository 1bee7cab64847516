"""Any change of what such a file says is noticed; how it is written does not matter."""

from __future__ import annotations

import json

import pytest

from transferqueue.storage.checked_json import check, write_checked

VALUES = {"name": "ö", "size": 1 << 40, "s": 0.1, "config": {"b": None, "a": [True, "x"]}}


def test_content_comes_back() -> None:
    for text in (write_checked(VALUES), json.dumps(json.loads(write_checked(VALUES)), indent=2, sort_keys=True)):
        values = json.loads(text)
        check(values)
        assert values == VALUES


def test_every_changed_character_is_noticed() -> None:
    text = write_checked(VALUES)
    noticed = 0
    for at in range(len(text)):
        for new in "08x ":
            try:
                values = json.loads(text[:at] + new + text[at + 1 :])
            except ValueError:
                continue  # no JSON any more
            if values == json.loads(text):
                continue  # the same character, or white space
            with pytest.raises(ValueError, match="checksum"):
                check(values)
            noticed += 1
    assert noticed > 50


@pytest.mark.parametrize("stated", [None, True, "0x0", 0, 1.5, []])
def test_what_is_no_checksum_is_none(stated: object) -> None:
    with pytest.raises(ValueError, match="checksum"):
        check({"a": 1, "crc32": stated})
