"""Contract of the native core. One `Store` is one process's attachment to a session.

Every method releases the GIL, may be called from any thread, and raises the classes of `transferqueue.errors`.
Bytes named by addresses are kept alive by the caller for the duration of the call.

The core is one module, `transferqueue._native`: the files beside this one are parts of its description, not modules to
import from.
"""

from __future__ import annotations

from transferqueue._native.blocks import ColumnTypes as ColumnTypes
from transferqueue._native.blocks import FieldLayout as FieldLayout
from transferqueue._native.blocks import Reservation as Reservation
from transferqueue._native.blocks import Resolved as Resolved
from transferqueue._native.blocks import TensorPlan as TensorPlan
from transferqueue._native.store import Store as Store
from transferqueue._native.tables import AlreadyApplied as AlreadyApplied
from transferqueue._native.tables import Indexes as Indexes
from transferqueue._native.tables import PublishResult as PublishResult
from transferqueue._native.tables import RequestRecord as RequestRecord
from transferqueue._native.tables import RowListing as RowListing
from transferqueue._native.tables import SavedSession as SavedSession
from transferqueue._native.tables import SessionSnapshot as SessionSnapshot
from transferqueue._native.tables import TaskSnapshot as TaskSnapshot

DENSE: int  # FieldLayout kinds
RAGGED: int
COLUMN: int
COLUMN_DENSE: int  # kinds of columns read whole
COLUMN_RAGGED: int
COLUMN_BYTES: int
LAYOUT_VERSION: int
BUILD_FINGERPRINT: int
PAUSE_POINTS: bool  # pause points are compiled in

def is_spill_file(fd: int) -> bool:
    """Whether it is a spill file of any session and version, or one whose creator died before it was finished."""

def distinct(indexes: Indexes) -> bool:
    """Whether no index stands there twice."""

def claim_clock() -> float: ...  # seconds on the clock of claims (CLOCK_BOOTTIME)
def set_claim_clock_ahead(ahead_s: float) -> None: ...  # tests only: of this process, from now on
def arm_pause(name: str, action: str, *, after: int = 0) -> None:
    """Tests only: after `after` passes: "kill", "freeze" (SIGSTOP), "stop" (until `resume`), "fail", "delay"."""

def resume(name: str) -> None: ...
def paused(name: str) -> bool:
    """A thread waits at that point now."""

def memcpy_seconds(destination_address: int, source_address: int, nbytes: int) -> float:
    """One single-thread memcpy, timed: the unit of every benchmark."""
