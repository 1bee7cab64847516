"""Text for terminals and logs: names come from whoever wrote them, and a terminal obeys control characters."""

from __future__ import annotations

import re

# C0, DEL and C1; separators of lines and paragraphs; marks that turn the direction of the text that follows; halves of
# surrogate pairs, which no terminal can be sent.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LAYOUT = "\n\t"


def printable(text: str, *, lines: bool = False) -> str:
    """`text` with everything that is no text escaped as in a Python literal (``\\x1b``).

    Args:
        lines: line ends and tabs stay; else they are escaped, too, so that one name is one word of one line.
    """
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda found: found[0] if lines and found[0] in _LAYOUT else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
