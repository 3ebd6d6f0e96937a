"""Lists every public name with its signature, one name per line. Users, scripts, dashboards and other packages rely on
these names.

The list does not include statements, because the grammar's tables record them. It does not include the catalog's tables
either, because their files are never edited.
"""

from __future__ import annotations

import ast
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlglot import parse_one
from sqlglot.expressions import Query
from typer.main import get_command

import rw_sql
from rw_sql import errors
from rw_sql.assets import list_assets, read_asset
from rw_sql.cli.main import app
from rw_sql.connectors import registry, spec
from rw_sql.magics import load as load_magics
from rw_sql.model.parameters import SESSION_PARAMETERS, SYSTEM_PARAMETERS
from rw_sql.runtime.observe.metrics import HELP

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(rw_sql.__file__).parent
CONNECTOR_MODULES = ("base", "fetching", "formats", "plain", "ranged", "sink", "sink_base", "snapshots", "spec")
"""The modules of rw_sql.connectors that other packages import."""
INTERNAL_VARIABLES = {"RW_SQL_FAULT", "RW_SQL_FAULT_KILLS", "RW_SQL_STARTED_BY"}
"""Variables that only the project's own tests and tools use to control its processes."""


PRIVATE_CLASS = re.compile(r"\b_[A-Z]")
"""A pattern for the name of a private class. A callable with a parameter of such a class is called only within the
package."""


def public_api() -> str:
    """The whole public API, in sections."""
    sections = {
        "package": package(),
        "connectors of one's own": connector_modules(),
        "entry-point groups": iter((registry.GROUP, registry.SINK_GROUP)),
        "commands": commands("rw-sql", get_command(app)),
        "magics": magics(),
        "environment": environment(),
        "parameters": parameters(),
        "metrics": metrics(),
        "errors": error_codes(),
        "catalog views": catalog_views(),
        "sources": connectors({name: spec.load_spec(name) for name in registry.BUILT_IN}),
        "sinks": connectors({name: spec.load_sink_spec(name) for name in registry.BUILT_IN_SINKS}),
    }
    return "\n".join(f"[{title}]\n" + "".join(f"{line}\n" for line in lines) for title, lines in sections.items())


def package() -> Iterator[str]:
    """The public names of ``import rw_sql``."""
    for name in sorted(rw_sql.__all__):
        module = import_module(getattr(rw_sql, name).__module__)
        node = next(node for node in tree(module) if getattr(node, "name", None) == name)
        yield from described("rw_sql", node)


def connector_modules() -> Iterator[str]:
    """The modules that a connector in another package imports."""
    for name in CONNECTOR_MODULES:
        module = import_module(f"rw_sql.connectors.{name}")
        if (exported := getattr(module, "__all__", None)) is not None:
            yield from (f"{module.__name__}.{found}" for found in exported)
            continue
        for node in tree(module):
            match node:  # A constant that another module defines is recorded with its value.
                case ast.Assign(targets=[ast.Name(id=constant)], value=ast.Attribute()) if is_public(constant):
                    yield f"{module.__name__}.{constant} = {getattr(module, constant)!r}"
                case _:
                    yield from described(module.__name__, node)


def tree(module: Any) -> list[ast.stmt]:
    """The statements of a module."""
    return ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body


def described(prefix: str, node: ast.stmt) -> Iterator[str]:
    """A definition, with the public members if it is a class; nothing for a private name or another statement."""
    match node:
        case ast.ClassDef(name=name) if is_public(name):
            bases = ", ".join(ast.unparse(base) for base in node.bases)
            made = "".join(f"@{ast.unparse(decorator)} " for decorator in node.decorator_list)
            yield f"{made}class {prefix}.{name}({bases})"
            for member in node.body:
                yield from described(f"{prefix}.{name}", member)
        case ast.FunctionDef(name=name, args=args) if is_public(name) and not PRIVATE_CLASS.search(ast.unparse(args)):
            made = "".join(f"@{ast.unparse(decorator)} " for decorator in node.decorator_list)
            returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            yield f"{made}def {prefix}.{name}({ast.unparse(node.args)}){returned}"
        case ast.AnnAssign(target=ast.Name(id=name)) if is_public(name):
            value = f" = {ast.unparse(node.value)}" if node.value else ""
            yield f"{prefix}.{name}: {ast.unparse(node.annotation)}{value}"
        case ast.Assign(targets=[ast.Name(id=name)]) if is_public(name):
            yield f"{prefix}.{name} = {ast.unparse(node.value)}"
        case _:
            return


def is_public(name: str) -> bool:
    """True if other code may use a name. ``__init__`` counts as public, because its parameters are those of the
    class."""
    return not name.startswith("_") or name == "__init__"


def commands(path: str, command: Any) -> Iterator[str]:
    """Every command with its arguments and options."""
    nested = getattr(command, "commands", None)
    if nested is not None:
        for name, found in sorted(nested.items()):
            yield from commands(f"{path} {name}", found)
        return
    yield path
    for found in command.params:
        names = [found.name.upper()] if found.param_type_name == "argument" else sorted(found.opts)
        flags = {
            "required": found.required,
            "repeatable": getattr(found, "multiple", False) or found.nargs == -1,
            f"value {found.metavar}": bool(found.metavar) and not getattr(found, "is_flag", False),
            "flag": getattr(found, "is_flag", False),
            f"env {found.envvar}": bool(found.envvar),
            f"default {found.default!r}": found.default not in (None, False, ()) and not callable(found.default),
        }
        yield f"{path} {', '.join([*names, *(flag for flag, is_set in flags.items() if is_set)])}"


class _Shell:
    """A replacement for IPython's shell that registers magics."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def register_magic_function(self, function: object, *, magic_kind: str, magic_name: str) -> None:
        self.lines.append(f"{magic_name}: {magic_kind}")


def magics() -> Iterator[str]:
    """The magics of ``%load_ext rw_sql``, and the options of the cell magic."""
    shell = _Shell()
    load_magics(shell)
    yield from shell.lines
    yield f"usage: {import_module('rw_sql.magics.arguments').USAGE}"


def environment() -> Iterator[str]:
    """The variables that the package reads."""
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    found = {name for text in texts for name in re.findall(r'"(RW_SQL_[A-Z_]+)"', text)}
    yield from sorted(found - INTERNAL_VARIABLES)


def parameters() -> Iterator[str]:
    """The parameters that ALTER SYSTEM SET and SET accept."""
    yield from (f"ALTER SYSTEM SET {known.name} = {known.default!r}" for known in SYSTEM_PARAMETERS.values())
    yield from (f"SET {known.name} = {known.default!r}" for known in SESSION_PARAMETERS.values())


def metrics() -> Iterator[str]:
    """The names of the metrics, without their labels."""
    yield from sorted(HELP)


def error_codes() -> Iterator[str]:
    """Codes, which are never used again, with their SQLSTATE and the constant's name."""
    known = {name: value for name, value in vars(errors).items() if isinstance(value, errors.ErrorCode)}
    yield from sorted(f"{value.code} {value.sqlstate} {name}" for name, value in known.items())


def catalog_views() -> Iterator[str]:
    """The columns of ``rw_catalog``'s views, in their order."""
    script = "\n".join(read_asset("catalog", name) for name in list_assets("catalog", ".sql"))
    views = dict(re.findall(r"(?ms)^CREATE VIEW rw_catalog\.(\w+) AS\n(.*?);\n", script))  # the newest text of a view
    for name, text in sorted(views.items()):
        query = parse_one(text, read="spark")
        assert isinstance(query, Query)
        yield f"rw_catalog.{name}: {', '.join(query.named_selects)}"


def connectors(known: dict[str, spec.ConnectorSpec]) -> Iterator[str]:
    """The options that WITH, FORMAT and INCLUDE accept for each connector."""
    for name, found in sorted(known.items()):
        formats = [f"{format_} {encode}" for format_, encodes in found.formats.items() for encode in encodes]
        yield f"{name}: {', '.join(sorted(formats)) or 'no format'}"
        for kind, column in sorted(found.include.items()):
            yield f"{name} INCLUDE {kind}: {column.type}"
        for key, option in sorted(found.options.items()):
            words = {
                "required": option.is_required,
                "secret": option.is_secret,
                "alterable": option.is_alterable,
                "of a connection": option.is_of_connection,
                "ignored": option.is_ignored,
                "one of " + " | ".join(option.choices): bool(option.choices),
                f"default {option.default!r}": option.default is not None,
            }
            yield f"{name} {key}: {option.type}" + "".join(f", {word}" for word, is_set in words.items() if is_set)


if __name__ == "__main__":
    sys.stdout.write(public_api())
