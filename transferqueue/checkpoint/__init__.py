"""A session's rows on disk: Arrow IPC files and a manifest, written and read as a whole. `docs/checkpoint.md` has the
format."""

from __future__ import annotations

from transferqueue.checkpoint.halves import load_rows as load_rows
from transferqueue.checkpoint.halves import save_rows as save_rows
from transferqueue.checkpoint.load import load as load
from transferqueue.checkpoint.save import save as save
