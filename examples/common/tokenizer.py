"""Character tokens for sums: a fixed alphabet, so that nothing has to be downloaded or trained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PAD_ID = 0
BOS_ID = 1
EOS_ID = 2

_ALPHABET = "0123456789+-="
_FIRST_CHARACTER_ID = 3


class CharTokenizer:
    """Maps text over ``0123456789+-=`` to token ids and back; pad, bos and eos are 0, 1 and 2."""

    vocab_size = _FIRST_CHARACTER_ID + len(_ALPHABET)

    def __init__(self) -> None:
        self._id_of = {character: _FIRST_CHARACTER_ID + i for i, character in enumerate(_ALPHABET)}

    def encode(self, text: str) -> list[int]:
        """The ids of the characters of ``text``, without bos or eos; ValueError for a foreign character."""
        foreign = sorted(set(text) - self._id_of.keys())
        if foreign:
            raise ValueError(f"cannot encode {text!r}: {foreign} are not in the alphabet {_ALPHABET!r}")
        return [self._id_of[character] for character in text]

    def encode_prompt(self, text: str) -> list[int]:
        """Bos followed by the characters."""
        return [BOS_ID, *self.encode(text)]

    def encode_response(self, text: str) -> list[int]:
        """The characters followed by eos."""
        return [*self.encode(text), EOS_ID]

    def decode(self, token_ids: Iterable[int]) -> str:
        """The characters up to the first eos; pad and bos are left out."""
        characters: list[str] = []
        for token_id in token_ids:
            if token_id == EOS_ID:
                break
            if token_id >= _FIRST_CHARACTER_ID:
                characters.append(_ALPHABET[token_id - _FIRST_CHARACTER_ID])
        return "".join(characters)

    def decode_batch(self, rows: Sequence[Iterable[int]]) -> list[str]:
        """:meth:`decode` of every row."""
        return [self.decode(row) for row in rows]
