"""Loggers for programs."""

from __future__ import annotations

import logging

from transferqueue.compat.environment import logging_level

__all__ = ["get_logger"]

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def get_logger(name: str | None, default_level: str = "WARNING") -> logging.Logger:
    """The logger of that name at the level of ``TQ_LOGGING_LEVEL`` (else `default_level`).

    Where neither it nor a parent has a handler it gets one for stderr, so that a Ray worker's messages are seen.
    """
    logger = logging.getLogger(name)
    logger.setLevel(logging_level(default_level))
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
    return logger
