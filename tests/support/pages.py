"""Pages whose samples are run: python blocks, each with what it prints in the text block that follows it."""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MARK = "\x1e\n"
# One main program, so that the classes of a page travel to ranks by value, as a reader's would.
_RUNNER = f"""
import json as _json, sys as _sys
_page, _samples = _sys.argv[1], _json.loads(_sys.stdin.read())
for _line, _code in _samples:
    exec(compile("\\n" * (_line - 1) + _code, _page, "exec"), globals())
    print({_MARK!r}, end="", flush=True)
"""


@dataclass
class Sample:
    """A python block of a page. `prints`: what the page says it prints, with ``...`` for what differs from run to run;
    None where the page shows nothing."""

    code: str
    line: int
    prints: str | None = None


def samples_of(page: Path) -> list[Sample]:
    """The python blocks in their order. `ValueError` for output that follows no sample."""
    text, found = page.read_text(), list[Sample]()
    for match in _BLOCK.finditer(text):
        kind, block = match.groups()
        if kind == "python":
            found.append(Sample(block, text[: match.start()].count("\n") + 2))
        elif not found or found[-1].prints is not None:
            raise ValueError(f"{page.name}: a text block that is the output of no sample:\n{block}")
        else:
            found[-1].prints = block
    return found


def wrong_on(page: Path, folder: Path, timeout_s: float = 110.0) -> str:
    """Runs all samples of a page in their order, as one program in `folder`; says what is not as the page says, nothing
    when all is."""
    samples = samples_of(page)
    done = subprocess.run(
        [sys.executable, "-c", _RUNNER, str(page)],
        input=json.dumps([(sample.line, sample.code) for sample in samples]),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=folder,
        check=False,
    )
    printed = done.stdout.split(_MARK)
    wrong = [
        f"{page.name}:{sample.line} prints\n{output}instead of\n{sample.prints}"
        for sample, output in zip(samples, printed, strict=False)
        if sample.prints is not None and not _as_said(sample.prints, output)
    ]
    if done.returncode:
        wrong.append(f"{page.name} ends with {done.returncode}\n{done.stderr}")
    return "\n".join(wrong)


def _as_said(said: str, output: str) -> bool:
    return doctest.OutputChecker().check_output(said, output, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
