"""Texts of which some are edited copies of others, and which: nothing has to be downloaded."""

from __future__ import annotations

import random
from dataclasses import dataclass

_SYLLABLES = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu")


@dataclass(frozen=True)
class Corpus:
    """`planted` are pairs of positions in `texts`, smaller first: the second was made from the first."""

    texts: list[str]
    planted: set[tuple[int, int]]


def make_corpus(documents: int, *, copies: int, words: int = 120, edited_share: float = 0.03, seed: int = 1) -> Corpus:
    """`documents` texts; `copies` of them repeat another one with that share of its words replaced."""
    rng = random.Random(seed)
    vocabulary = ["".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4))) for _ in range(5000)]
    originals = [rng.choices(vocabulary, k=rng.randint(words // 2, words)) for _ in range(documents - copies)]
    made = list(enumerate(originals))
    for source in rng.sample(range(len(originals)), copies):
        copy = [rng.choice(vocabulary) if rng.random() < edited_share else word for word in originals[source]]
        made.append((source, copy))
    order = rng.sample(range(documents), documents)
    place = {old: new for new, old in enumerate(order)}
    pairs = {(place[source], place[len(originals) + i]) for i, (source, _) in enumerate(made[len(originals) :])}
    return Corpus([" ".join(made[old][1]) for old in order], {(min(pair), max(pair)) for pair in pairs})
