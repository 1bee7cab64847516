"""Loggers: heard where the program set nothing up, silent twice where it did."""

from __future__ import annotations

import logging

import pytest

from transferqueue import logs


def test_names_stand_below_the_package() -> None:
    assert logs.get_logger("bridge").name == "transferqueue.bridge"
    assert logs.get_logger("transferqueue.workers.x").name == "transferqueue.workers.x"
    assert logs.get_logger("transferqueue").name == "transferqueue"


def test_configuring_again_adds_no_second_handler(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger("transferqueue")
    before = root.level
    kept, logging.getLogger().handlers = logging.getLogger().handlers, []
    try:
        logs.configure("INFO")
        logs.configure("INFO")
        logs.get_logger("test").info("a line of text")
        logs.get_logger("test").debug("below the level")
        printed = capsys.readouterr().err
    finally:
        logging.getLogger().handlers = kept
        root.setLevel(before)
    assert printed.count("a line of text") == 1
    assert "transferqueue.test" in printed
    assert "below" not in printed


def test_a_program_with_handlers_hears_each_record_once(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger("transferqueue")
    before = root.level
    heard: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    handler = Handler()
    logging.getLogger().addHandler(handler)
    try:
        logs.configure("INFO")
        logs.get_logger("test").info("once")
    finally:
        logging.getLogger().removeHandler(handler)
        root.setLevel(before)
    assert heard == ["once"]
    assert "once" not in capsys.readouterr().err
