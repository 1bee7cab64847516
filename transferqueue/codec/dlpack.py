"""A tensor of a DLPack capsule of ours."""

from __future__ import annotations

try:
    from torch._C import _from_dlpack as from_dlpack  # what the public one calls after 40 lines of Python
except ImportError:
    from torch.utils.dlpack import from_dlpack  # type: ignore[assignment]

__all__ = ["from_dlpack"]
