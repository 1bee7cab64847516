"""The stubs in `transferqueue/_native` are the contract of the native module: names and signatures must be equal."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import transferqueue
from transferqueue import _native

STUBS = sorted(Path(transferqueue.__file__).with_name("_native").glob("*.pyi"))


def stub_tree() -> ast.Module:
    """All files as one, since the module is one."""
    return ast.Module([node for stub in STUBS for node in ast.parse(stub.read_text()).body], [])


def stub_functions(body: list[ast.stmt]) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def stub_attributes(body: list[ast.stmt]) -> dict[str, str]:
    """Annotated names, those of a class included, with their annotation."""
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def stub_classes() -> dict[str, ast.ClassDef]:
    return {node.name: node for node in stub_tree().body if isinstance(node, ast.ClassDef)}


def is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)


def normal_type(text: str) -> str:
    """One spelling for the stub's types and nanobind's."""
    text = re.sub(r"\bnumpy\.ndarray\[dtype=(\w+)[^\]]*\]|\bndarray\[dtype=(\w+)[^\]]*\]", r"NDArray[\1\2]", text)
    text = re.sub(r"(?:npt\.)?NDArray\[(?:np\.)?(\w+)\]", r"NDArray[\1]", text)
    text = re.sub(r"\b_Strings\b", "tuple[NDArray[uint8], Indexes]", text)
    text = re.sub(r"\bIndexes\b", "NDArray[int64]", text)
    text = re.sub(r"\b(?:collections\.abc|typing|transferqueue\._native|_native)\.", "", text)
    text = re.sub(r"\b(?:Any|object|types\.CapsuleType|CapsuleType)\b", "Any", text)
    return text.replace(" ", "")


def described(node: ast.FunctionDef) -> list[tuple[str, str, str, str]]:
    """(name, kind, type, default) of each parameter and of the result, `self` left out."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    rows = [
        (argument.arg, "positional", argument.annotation, default)
        for argument, default in zip(positional, defaults, strict=True)
        if argument.arg != "self"
    ]
    rows += [
        (argument.arg, "keyword", argument.annotation, default)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    result = [
        (
            name,
            kind,
            normal_type(ast.unparse(annotation)) if annotation else "",
            ast.unparse(default) if default else "-",
        )
        for name, kind, annotation, default in rows
    ]
    return [*result, ("return", "", normal_type(ast.unparse(node.returns)) if node.returns else "None", "-")]


def native_function(function: Any) -> ast.FunctionDef:
    """What nanobind says about its own function, as a parsed definition."""
    [(signature, _, defaults)] = function.__nb_signature__
    text = re.sub(r"\\(\d+)", lambda match: repr(defaults[int(match.group(1))]), signature)
    text = re.sub(r"def \(", "def getter(", text)
    # ndarray[dtype=int64, shape=(*)] is not Python: quote it, normal_type reads it.
    text = re.sub(r"(?:numpy\.)?ndarray\[dtype=(\w+)[^\]]*\]", r"NDArray[\1]", text)
    node = ast.parse(text + ": ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def public(names: Any) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_module_names() -> None:
    body = stub_tree().body
    expected = set(stub_functions(body)) | set(stub_classes()) | set(stub_attributes(body))
    assert public(dir(_native)) == expected


@pytest.mark.parametrize("name", sorted(stub_functions(stub_tree().body)))
def test_module_function(name: str) -> None:
    expected = described(stub_functions(stub_tree().body)[name])
    assert described(native_function(getattr(_native, name))) == expected


@pytest.mark.parametrize("name", sorted(stub_attributes(stub_tree().body)))
def test_constant_type(name: str) -> None:
    assert type(getattr(_native, name)).__name__ == stub_attributes(stub_tree().body)[name]


@pytest.mark.parametrize("class_name", sorted(stub_classes()))
def test_class_names(class_name: str) -> None:
    stub = stub_classes()[class_name]
    expected = set(stub_functions(stub.body)) | set(stub_attributes(stub.body))
    assert public(vars(getattr(_native, class_name))) == public(expected)


def methods() -> list[tuple[str, str]]:
    return [
        (class_name, name)
        for class_name, stub in sorted(stub_classes().items())
        for name, node in sorted(stub_functions(stub.body).items())
        if not is_property(node)
    ]


@pytest.mark.parametrize(("class_name", "name"), methods())
def test_method(class_name: str, name: str) -> None:
    expected = stub_functions(stub_classes()[class_name].body)[name]
    found = getattr(_native, class_name).__dict__[name]
    assert described(native_function(getattr(found, "__func__", found))) == described(expected)


def properties() -> list[tuple[str, str, str]]:
    rows = []
    for class_name, stub in sorted(stub_classes().items()):
        rows += [(class_name, name, annotation) for name, annotation in stub_attributes(stub.body).items()]
        rows += [
            (class_name, name, ast.unparse(node.returns) if node.returns else "None")
            for name, node in stub_functions(stub.body).items()
            if is_property(node)
        ]
    return rows


@pytest.mark.parametrize(("class_name", "name", "annotation"), properties())
def test_property(class_name: str, name: str, annotation: str) -> None:
    found = getattr(_native, class_name).__dict__[name]
    assert described(native_function(found.fget)) == [("return", "", normal_type(annotation), "-")]
