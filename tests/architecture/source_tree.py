"""The project's Python files, what each imports, and where: read from the syntax tree, nothing is executed."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "transferqueue": "transferqueue",
    "workers": "transferqueue.workers",
    "controller": "transferqueue.controller",
}


@dataclass(frozen=True)
class Import:
    importer: str  # dotted module
    imported: str  # dotted module (or module.attribute for "from x import y")
    line: int
    inside_function: bool
    type_checking_only: bool


def module_name(path: Path) -> str:
    folder, *rest = path.relative_to(ROOT).with_suffix("").parts
    parts = [PACKAGES[folder], *rest]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def python_files() -> tuple[Path, ...]:
    return tuple(sorted(path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")))


@cache
def native_files() -> tuple[Path, ...]:
    return tuple(sorted(path for ending in ("*.cpp", "*.hpp") for path in (ROOT / "native").rglob(ending)))


def _walk(node: ast.AST, module: str, is_package: bool, inside: bool, typing_only: bool, found: list[Import]) -> None:
    for child in ast.iter_child_nodes(node):
        inside_child = inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        typing_child = typing_only or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
        if isinstance(child, ast.Import):
            found.extend(Import(module, name.name, child.lineno, inside, typing_only) for name in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            if child.level:
                package = module if is_package else module.rpartition(".")[0]
                for _ in range(child.level - 1):
                    package = package.rpartition(".")[0]
                base = f"{package}.{base}" if base else package
            found.extend(
                Import(module, f"{base}.{name.name}", child.lineno, inside, typing_only) for name in child.names
            )
        else:
            _walk(child, module, is_package, inside_child, typing_child, found)


@cache
def imports() -> tuple[Import, ...]:
    found: list[Import] = []
    for path in python_files():
        _walk(ast.parse(path.read_text()), module_name(path), path.name == "__init__.py", False, False, found)
    return tuple(found)
