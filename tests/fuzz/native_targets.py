"""The native fuzz targets: built with libFuzzer where there is a clang that has it, else with the mutating driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "tests" / "native"
NAMES = ("records", "index", "index_file", "limits", "payload", "saved_tables", "session")
_CLANGS = ("clang++", *(f"clang++-{version}" for version in range(21, 13, -1)))
# Address space is not limited under the sanitizer; what one input makes us ask for is.
ENVIRONMENT = {
    "ASAN_OPTIONS": "max_allocation_size_mb=1024:detect_leaks=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def clang_with_libfuzzer() -> str | None:
    """A compiler that links a program with libFuzzer."""
    for name in _CLANGS:
        found = shutil.which(name)
        if found is None:
            continue
        program = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
        command = [found, "-x", "c++", "-", "-fsanitize=fuzzer,address", "-o", os.devnull]
        if subprocess.run(command, input=program.encode(), capture_output=True, check=False).returncode == 0:
            return found
    return None


def build() -> tuple[Path, bool]:
    """The program, and whether it is libFuzzer's.

    Raises:
        RuntimeError: it does not build; says why.
    """
    clang = clang_with_libfuzzer()
    place = ROOT / "build" / ("fuzz-clang" if clang else "fuzz-driver")
    options = ["-DTQ_SANITIZE=address", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-G", "Ninja"]
    name = "fuzz_driver"
    if clang:
        name = "fuzz_libfuzzer"
        options += [
            f"-DCMAKE_CXX_COMPILER={clang}",
            "-DTQ_LIBFUZZER=ON",
            "-DCMAKE_CXX_FLAGS=-fsanitize=fuzzer-no-link",
        ]
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in (["cmake", "-S", SOURCES, "-B", place, *options], ["cmake", "--build", place, "--target", name]):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=tools, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the fuzz targets do not build:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return place / name, clang is not None


def command(program: Path, target: str, seconds: int, *, libfuzzer: bool) -> tuple[list[str], dict[str, str]]:
    """(command, environment) of a run of one target."""
    environment = {**os.environ, **ENVIRONMENT}
    kept = SOURCES / "fuzz" / "inputs" / target
    if not libfuzzer:
        return [str(program), target, str(seconds), "--inputs", str(kept)], environment
    corpus, seeds = (ROOT / "build" / "fuzz" / part / target for part in ("corpus", "seeds"))
    for folder in (corpus, seeds):
        folder.mkdir(parents=True, exist_ok=True)
    environment |= {"TQ_FUZZ_TARGET": target, "TQ_FUZZ_SEEDS": str(seeds)}
    options = [
        f"-max_total_time={seconds}",
        "-max_len=1024",
        "-rss_limit_mb=4096",
        "-timeout=60",
        "-print_final_stats=1",
    ]
    artifacts = f"-artifact_prefix={ROOT}/build/fuzz/fuzz-{target}-"
    folders = [str(folder) for folder in (corpus, seeds, kept) if folder.exists()]
    return [str(program), *options, artifacts, *folders], environment
