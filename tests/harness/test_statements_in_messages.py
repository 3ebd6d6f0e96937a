"""Messages contain statements to type: the names of objects in them are written as SQL writes them.

Without quotes, ``RESET SOURCE SPLITS Orders`` moves the source ``orders``, which is another one than ``"Orders"``.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[2] / "rw_sql"
FILES = sorted(PACKAGE.rglob("*.py"))

_VALUE = "\x00"
"""Stands for a value in the text of an f-string."""

_BEFORE_A_NAME = re.compile(
    r"\b(?:SOURCES?|VIEW|TABLE|SINK|CONNECTION|SECRET|SCHEMA|SPLITS|OFFSETS|RECORD|CONTINUITY|REWIND|REFRESH|WAIT|"
    rf"DESCRIBE|FROM|(?:ALTER|CREATE|DROP|PAUSE|RESUME|VALIDATE|WAIT) {_VALUE}) $"
)
_NAMES = ("name", "key")
_OF_CATALOG = ("model", "plan", "runtime")
"""The packages in which a text parameter ``name`` or ``key`` is the name of an object in the catalog."""

_UNQUOTED = ("object_name", "str")
"""Functions whose results are names without quotes."""


def unquoted_names(tree: ast.AST, *, is_of_catalog: bool = True) -> list[tuple[int, str]]:
    """The lines of f-strings with a statement, such as ``DROP SINK {sink.name}``, and the name in it.

    With ``is_of_catalog``, a text parameter ``name`` or ``key`` is the name of an object.
    """
    nodes = list(ast.walk(tree))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    return [
        (text.lineno, ast.unparse(value))
        for text in nodes
        if isinstance(text, ast.JoinedStr)
        for value in _named_values(text)
        if _is_unquoted(value, around(functions, text))
        or (is_of_catalog and _is_parameter(value, around(functions, text)))
    ]


def around(functions: list[ast.FunctionDef], text: ast.JoinedStr) -> list[ast.FunctionDef]:
    """The functions that contain an f-string."""
    return [each for each in functions if each.lineno <= text.lineno <= (each.end_lineno or 0)]


def _is_parameter(value: ast.expr, functions: list[ast.FunctionDef]) -> bool:
    """True for a text parameter ``name`` or ``key`` of the functions."""
    return (
        isinstance(value, ast.Name)
        and value.id in _NAMES
        and any(
            parameter.arg == value.id
            and parameter.annotation is not None
            and ast.unparse(parameter.annotation) == "str"
            for function in functions
            for parameter in (*function.args.args, *function.args.kwonlyargs)
        )
    )


def _named_values(text: ast.JoinedStr) -> Iterator[ast.expr]:
    """The values of an f-string that stand where a statement has the name of an object."""
    before = ""
    for value in text.values:
        if isinstance(value, ast.Constant):
            before += str(value.value)
        elif isinstance(value, ast.FormattedValue):
            if _BEFORE_A_NAME.search(before):
                yield value.value
            before += _VALUE


def _is_unquoted(value: ast.expr, functions: list[ast.FunctionDef]) -> bool:
    """True for the name of an object, for a variable of ``functions`` with such a name, and for a name made from it."""
    match value:
        case ast.Attribute():
            return value.attr in _NAMES
        case ast.Call(func=ast.Name(id=function)):
            return function in _UNQUOTED
        case ast.IfExp():
            return _is_unquoted(value.body, functions) or _is_unquoted(value.orelse, functions)
        case ast.BinOp():
            return _is_unquoted(value.left, functions) or _is_unquoted(value.right, functions)
        case ast.Name():
            values = (each for function in functions for each in _assigned(value.id, function))
            return any(_is_unquoted(each, []) for each in values)
        case _:
            return False


def _assigned(name: str, function: ast.FunctionDef) -> Iterator[ast.expr]:
    """The values of a variable; for a parameter of type Name, a call of ``str`` with the parameter."""
    for parameter in (*function.args.args, *function.args.kwonlyargs):
        kind = "" if parameter.annotation is None else ast.unparse(parameter.annotation)
        if parameter.arg == name and kind.removeprefix("ast.") == "Name":
            yield ast.parse(f"str({name})", mode="eval").body
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id == name:
                yield node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=False)
                yield from (each for one, each in pairs if isinstance(one, ast.Name) and one.id == name)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ('f"PAUSE SOURCE {source.name} first"', ["source.name"]),
        ('f"DROP SINK {sql_name(sink.name)}"', []),
        ('f"sink {sink.name}"', []),
        ('f"ALTER {kind} {statement.name.key} SET (…)"', ["statement.name.key"]),
        ('def a():\n    name = statement.name.key\n    return f"write CREATE {kind} {name}_2"', ["name"]),
        ('def a():\n    name = sql_name(statement.name.key)\n    return f"DROP {kind} {name}"', []),
        ('def a():\n    kind, name = found.kind, found.name if found else "s"\n    f"ALTER SOURCE {name}"', ["name"]),
        ('def a(name: ast.Name):\n    return f"CREATE TABLE t FROM {name}"', ["name"]),
        ('def a(name: str):\n    return f"CREATE TABLE t FROM {name}"', ["name"]),
        ('def a(written: str):\n    return f"CREATE TABLE t FROM {written}"', []),
    ],
)
def test_names_without_quotes_are_found(code: str, names: list[str]) -> None:
    assert [name for _, name in unquoted_names(ast.parse(code))] == names


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(PACKAGE)) for file in FILES])
def test_statements_in_messages_can_be_typed(file: Path) -> None:
    tree, package = ast.parse(file.read_text(encoding="utf-8")), file.relative_to(PACKAGE).parts[0]
    assert unquoted_names(tree, is_of_catalog=package in _OF_CATALOG) == []
