"""Sets of word triples, their sketches, and how alike two sets are.

Source: minwise hashing from Broder, "On the resemblance and containment of documents" (1997); sketches cut into bands,
so that alike texts share one, from Leskovec, Rajaraman, Ullman, "Mining of Massive Datasets", section 3.4.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

_PRIME = (1 << 31) - 1
BANDS, ROWS_OF_BAND = 16, 4
_HASHES = BANDS * ROWS_OF_BAND


def shingles(text: str, words: int = 3) -> Numbers:
    """The hashes of each run of that many words, each once, sorted; of a shorter text the hash of the whole."""
    tokens = text.lower().split()
    runs = [" ".join(tokens[i : i + words]) for i in range(max(1, len(tokens) - words + 1))]
    return np.unique(np.array([zlib.crc32(run.encode()) % _PRIME for run in runs], dtype=np.int64))


def sketch(numbers: Numbers) -> Numbers:
    """The smallest value of each of 64 hash functions over the set. Two sets agree in each with their resemblance."""
    rng = np.random.default_rng(7)
    factors = rng.integers(1, _PRIME, size=(_HASHES, 1), dtype=np.int64)
    terms = rng.integers(0, _PRIME, size=(_HASHES, 1), dtype=np.int64)
    # Products of two numbers below 2^31 stay below 2^62.
    smallest: Numbers = ((factors * numbers + terms) % _PRIME).min(axis=1)
    return smallest


def bands(signature: Numbers) -> Numbers:
    """One number for each four values of a sketch: texts that share one are looked at together."""
    cut = np.ascontiguousarray(signature).reshape(BANDS, ROWS_OF_BAND)
    return np.array([zlib.crc32(row.tobytes()) for row in cut], dtype=np.int64)


def resemblance(left: Numbers, right: Numbers) -> float:
    """What two sorted sets share, as a part of what they have together."""
    shared = len(np.intersect1d(left, right, assume_unique=True))
    return shared / max(1, len(left) + len(right) - shared)
