"""What docs/checkpoint.md says about the files, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict

from tests.support.sessions import embedded
from transferqueue.checkpoint.manifest import FILES, FORMAT_VERSION

PAGE = (Path(__file__).parents[3] / "docs" / "checkpoint.md").read_text()


def test_a_field_is_read_without_the_library(tmp_path: Path) -> None:
    [program] = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "np.frombuffer" in code]
    x = torch.randn(64, 1000)
    with embedded() as session:
        session.client.put(TensorDict({"x": x}, [64]), partition_id="p")
        session.client.save_checkpoint(tmp_path / "step-100")
    names: dict[str, Any] = {}
    exec(program.replace("checkpoints/step-100", str(tmp_path / "step-100")), names)
    assert names["values"].tolist() == x.flatten().tolist()


def test_every_file_and_the_version_are_named() -> None:
    assert f"## Format, version {FORMAT_VERSION}" in PAGE
    assert [name for name in FILES if f"| `{name}` |" not in PAGE] == []
