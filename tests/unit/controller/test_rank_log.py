"""The last lines of a rank's log, and what is said of its end."""

from __future__ import annotations

from pathlib import Path

from transferqueue.controller.death_report import death_of, exit_cause
from transferqueue.controller.rank_facts import RankFacts
from transferqueue.controller.rank_log import last_lines


def test_the_last_lines_without_colours_and_markers(tmp_path: Path) -> None:
    out, err = tmp_path / "a.out", tmp_path / "a.err"
    out.write_text(":job_id:01\n:actor_name:A\n" + "".join(f"line {i}\n" for i in range(100)))
    err.write_bytes(b"\x1b[31mred\x1b[0m \xff\n\n" + b"x" * 1000)
    assert last_lines([str(out), str(err)], 3) == ("line 97", "line 98", "line 99", "red \ufffd", "x" * 400)
    assert last_lines([str(tmp_path / "none")]) == ()


def test_a_large_log_is_not_read_whole(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with log.open("wb") as file:
        file.truncate(1 << 40)  # sparse
        file.seek(0, 2)
        file.write(b"\nthe end\n")
    assert last_lines([str(log)])[-1] == "the end"


def test_a_death_is_told_with_them(tmp_path: Path) -> None:
    log = tmp_path / "a.err"
    log.write_text("out of luck\n")
    facts = RankFacts(3, "192.0.2.1 (abc)", "abc", 17, (str(log),))
    error = death_of(facts, "train", "Worker exit type: SYSTEM_ERROR Worker exit detail: exit 3.")
    assert (error.rank, error.pid, error.method, error.reason) == (3, 17, "train", "SYSTEM_ERROR: exit 3.")
    assert error.log_lines == ("out of luck",)
    assert str(error) == (
        "rank 3 (node 192.0.2.1 (abc), pid 17) died during train; the group is dead. Cause: SYSTEM_ERROR: exit 3.\n"
        f"The last lines of its log ({log}):\n  out of luck"
    )


def test_causes() -> None:
    silent = (
        "The actor died.\n\tclass_name: A\nWorker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly "
        "exits with a connection error code 2. End of file. Some common causes include: ..."
    )
    assert exit_cause(silent).startswith("SYSTEM_ERROR: the process ended without a word: killed by a signal")
    assert exit_cause("The node\n  is dead") == "The node is dead"
