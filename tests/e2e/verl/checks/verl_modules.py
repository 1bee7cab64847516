"""Modules of verl below a package whose own import wants what only a trainer on GPUs needs."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType


def trainer_module(name: str) -> ModuleType:
    """verl.trainer.ppo.v1.<name>, the file as installed, without what the package imports beside it.

    verl/trainer/ppo/v1/__init__.py imports every trainer, and with them PEFT, datasets, FastAPI and more, of which
    `name` uses nothing.
    """
    package = "verl.trainer.ppo.v1"
    if package not in sys.modules:
        above = importlib.import_module("verl.trainer.ppo")
        spec = ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [str(Path(str(above.__file__)).parent / "v1")]
        sys.modules[package] = module_from_spec(spec)
    return importlib.import_module(f"{package}.{name}")
