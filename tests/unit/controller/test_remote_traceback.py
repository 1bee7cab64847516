"""What a rank's error says after Ray has had its way with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from transferqueue.controller.remote_traceback import one_line, traceback_text
from transferqueue.errors import FieldNotReadyError
from transferqueue.workers import bridge

HEADER = "\x1b[36mray::W.score()\x1b[39m (pid=12, ip=10.0.0.1, repr=<W object at 0x7f>)"
BRIDGE = (
    f'  File "{Path(bridge.__file__)}", line 73, in bridged\n    result = step.blocking()\n             ^^^^^^^^^^^^^^^'
)


def ray_error(*parts: str) -> Exception:
    return RuntimeError("\n".join(parts))


def test_the_traceback_is_the_methods() -> None:
    user = '  File "train.py", line 9, in score\n    return batch["nope"]\n           ~~~~~^^^^^^^^'
    cause = KeyError("key \"nope\" not found in TensorDict with keys ['x']")
    text = traceback_text(ray_error(HEADER, "           ^^^^^", BRIDGE, user, f"KeyError: {cause}"), cause)
    assert text == (
        'Traceback on the rank:\n  File "train.py", line 9, in score\n    return batch["nope"]\n'
        "KeyError: key \"nope\" not found in TensorDict with keys ['x']"
    )


def test_a_failure_of_the_bridge_itself_keeps_its_frames() -> None:
    text = traceback_text(ray_error(HEADER, BRIDGE, "ValueError: x"), ValueError("x"))
    assert "in bridged\n    result = step.blocking()\nValueError: x" in text


def test_what_an_error_says_is_kept_line_by_line() -> None:
    message = "first\n\n  second: 1 ~ 2\n    third"
    cause = ValueError(message)
    text = traceback_text(ray_error(HEADER, '  File "train.py", line 9, in f', f"ValueError: {message}"), cause)
    assert text.endswith(f"ValueError: {message}")


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (KeyError('it\'s "b"'), 'KeyError: it\'s "b"'),
        (KeyError(3), "KeyError: 3"),
        (KeyError("a", "b"), "KeyError: ('a', 'b')"),
        (FieldNotReadyError("no field 'x'"), "FieldNotReadyError: no field 'x'"),
        (ValueError("two\nlines"), "ValueError: two"),
        (ValueError(), "ValueError"),
    ],
)
def test_one_line_without_escapes(cause: Exception, text: str) -> None:
    assert one_line(cause) == text
