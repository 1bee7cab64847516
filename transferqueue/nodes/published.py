"""What a partition's home answers to a put of another node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from transferqueue.nodes.messages import carried


@carried
@dataclass
class Published:
    """The part of a `PublishResult` that travels, and what a put by keys returns.

    Attributes:
        indexes: int64, the rows; none when limits dropped the put.
        shed_rows: rows that limits removed for it.
        fields: of a put by keys: the fields that all the keys have now.
        tags: of a put by keys: the keys' tags.
    """

    indexes: npt.NDArray[np.int64]
    shed_rows: int = 0
    fields: list[str] | None = None
    tags: list[dict[str, Any]] | None = None
