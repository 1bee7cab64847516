"""Runs a command in which ``import transfer_queue`` means `transferqueue.compat.transfer_queue`.

    tq dropin -- python train.py
    python -m transferqueue.dropin -- python train.py

The environment of the command gets one path entry; whatever it starts inherits it: processes, multiprocessing, a Ray
cluster of its own. Nothing is installed, and programs that run otherwise find what they found before. Where the command
connects to a Ray cluster that runs already, whose workers inherit from that, the entry goes into the job's runtime
environment, by the hook that Ray has for that purpose.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import shlex
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

NAME = "transfer_queue"
CANONICAL_NAME = f"transferqueue.compat.{NAME}"
PATH_ENTRY = str(Path(__file__).resolve().parent / "compat" / "path_entry")

_PATH = "PYTHONPATH"
_RAY_HOOK = "RAY_RUNTIME_ENV_HOOK"
_OUR_HOOK = f"{__name__ if __name__ != '__main__' else 'transferqueue.dropin'}.add_to_runtime_env"
_NEXT_HOOK = "TQ_DROPIN_NEXT_RUNTIME_ENV_HOOK"
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # as shells say it


def main(arguments: Sequence[str] | None = None) -> int:
    """Becomes the command: its exit status, signals and input are its own. Without one, prints what to set in a shell.

    Returns only when there is no command, or it cannot be started: 0, 126 or 127.
    """
    command = list(sys.argv[1:] if arguments is None else arguments)
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        for name, value in changes_of(os.environ).items():
            print(f"export {name}={shlex.quote(value)}")
        return 0
    if Path(NAME).is_dir():
        print(
            f"tq dropin: there is a folder {NAME} in {os.getcwd()}; what puts that folder on its path first "
            "(python -m, python -c, pytest) imports that one",
            file=sys.stderr,
        )
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, {**os.environ, **changes_of(os.environ)})
    except OSError as error:
        print(f"tq dropin: {command[0]}: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE


def changes_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a command's environment gets, given the one it would have. Applied twice, changes nothing."""
    others = [entry for entry in environment.get(_PATH, "").split(os.pathsep) if entry not in ("", PATH_ENTRY)]
    changes = {_PATH: os.pathsep.join([PATH_ENTRY, *others]), _RAY_HOOK: _OUR_HOOK}
    hook = environment.get(_RAY_HOOK)
    if hook and hook != _OUR_HOOK:
        changes[_NEXT_HOOK] = hook
    return changes


def add_to_runtime_env(runtime_env: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Ray calls this in ``ray.init`` (`RAY_RUNTIME_ENV_HOOK`) with the job's runtime environment.

    Returns:
        `runtime_env` as it is where Ray will start a cluster, whose workers inherit this process's environment; where
        one runs, a copy with the path entry before the workers' own.
    """
    next_hook = os.environ.get(_NEXT_HOOK)
    if next_hook:
        module, _, function = next_hook.rpartition(".")
        runtime_env = getattr(importlib.import_module(module), function)(runtime_env)
    if not _a_cluster_runs():
        return runtime_env
    variables = dict((runtime_env or {}).get("env_vars") or {})
    entries = variables.get(_PATH, f"${{{_PATH}}}")  # Ray puts the worker's own there
    if PATH_ENTRY not in entries.split(os.pathsep):
        variables[_PATH] = os.pathsep.join([PATH_ENTRY, entries])
    return {**(runtime_env or {}), "env_vars": variables}


def _a_cluster_runs() -> bool:
    """Whether ``ray.init`` finds a cluster to connect to: named by the environment, or started on this machine by
    ``ray start``, which leaves its address in this file."""
    if os.environ.get("RAY_ADDRESS", "local") != "local":
        return True
    file = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"
    try:
        return bool(file.read_text().strip())
    except OSError:
        return False


def alias_modules(modules: MutableMapping[str, Any] | None = None) -> None:
    """Makes ``transfer_queue`` and its submodules names of the modules of `CANONICAL_NAME`.

    There is one module object under both names, so a class has one identity, a pickle made under one name loads under
    the other, and a patch by dotted path is seen whichever is used. All submodules are imported for that.
    """
    names = sys.modules if modules is None else modules
    package = importlib.import_module(CANONICAL_NAME)
    for found in pkgutil.walk_packages(package.__path__, f"{CANONICAL_NAME}."):
        names[NAME + found.name.removeprefix(CANONICAL_NAME)] = importlib.import_module(found.name)
    names[NAME] = package


if __name__ == "__main__":
    sys.exit(main())
