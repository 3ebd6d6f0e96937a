"""Describes Spark's functions: the kind of each function, and the numbers of arguments that the function accepts.

Each version of Spark has other functions. The functions are those of the installed PySpark. If PySpark is not
installed, or rw_sql does not support its version, they are those of the newest supported version.
:func:`functions_of` selects another version.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.spark_jars import SUPPORTED, minor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

AGGREGATE, GENERATOR, TABLE, WINDOW, SCALAR = "aggregate", "generator", "table", "window", "scalar"

CASTS = frozenset({
    "bigint", "binary", "boolean", "date", "decimal", "double", "float", "int", "smallint", "string", "timestamp",
    "tinyint",
})  # fmt: skip
"""Functions that are casts. The output column of such a call gets the name of the call's argument."""

_SYNTAX = frozenset({
    "cast", "collate", "date_diff", "dateadd", "datediff", "extract", "identifier", "map", "named_struct", "overlay",
    "position", "struct", "substr", "substring", "timestampadd", "timestampdiff", "trim", "try_cast",
})  # fmt: skip
"""Functions whose calls Spark's grammar parses by special rules. The number of arguments of such a call is not
checked."""

TIME_WINDOWS = ("window", "session_window")
"""Functions that, when a select calls them, add a column with the function's name to the scope of the select."""

UNIT_FIRST = frozenset({"date_add", "date_diff", "dateadd", "datediff", "timestampadd", "timestampdiff"})
"""Functions whose first argument may be a unit of time, which looks like a column name."""

UNITS = frozenset({
    "year", "quarter", "month", "week", "day", "dayofyear", "hour", "minute", "second", "millisecond", "microsecond",
})  # fmt: skip

WITHOUT_BRACKETS = frozenset({
    "current_catalog", "current_database", "current_date", "current_path", "current_schema", "current_time",
    "current_timestamp", "current_timezone", "current_user", "grouping__id", "localtimestamp", "session_user", "user",
})  # fmt: skip
"""Functions that a query can call without parentheses. If there is a column with the function's name, the name refers
to the column."""

_GROUPING_ID = "grouping__id"
"""A column of the result of GROUPING SETS. No function of Spark has this name."""


@dataclass(frozen=True, slots=True)
class Builtin:
    """A Spark function. It accepts ``least``, ``least + step``, ``least + 2 * step``, … arguments, but at most
    ``most``. There is no maximum if ``most`` is None."""

    name: str
    kind: str
    least: int
    most: int | None
    step: int = 1

    def takes(self, count: int) -> bool:
        """True if the function accepts ``count`` arguments, or if the number of its arguments is not checked."""
        if self.name in _SYNTAX:
            return True
        if count < self.least or (self.most is not None and count > self.most):
            return False
        return (count - self.least) % self.step == 0

    @property
    def counts(self) -> str:
        """The accepted numbers of arguments as text, such as ``1 or 2 arguments``."""
        if self.most is None:
            return f"at least {_arguments(self.least)}"
        if self.least == self.most:
            return "no arguments" if not self.least else _arguments(self.least)
        if self.most == self.least + 1 or self.step > 1:
            return " or ".join(map(str, range(self.least, self.most + 1, self.step))) + " arguments"
        return f"{self.least} to {self.most} arguments"


def _arguments(count: int) -> str:
    return f"{count} argument{'s' if count != 1 else ''}"


_selected: ContextVar[str | None] = ContextVar("selected", default=None)
_VERSION = re.compile(r"^__version__\b[^'\"\n]*['\"]([^'\"]+)", re.MULTILINE)


@contextmanager
def functions_of(minor: str) -> Iterator[None]:
    """A context manager in which :func:`builtins` returns the functions of a minor version of Spark, such as
    ``4.0``."""
    token = _selected.set(minor)
    try:
        yield
    finally:
        _selected.reset(token)


@cache
def installed_minor() -> str | None:
    """The minor version of the installed PySpark; None if PySpark is not installed. PySpark is not imported, because
    the import takes a second."""
    try:
        spec = find_spec("pyspark")
    except ImportError:  # A finder of modules may refuse a module in this way.
        return None
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        try:
            found = _VERSION.search((Path(folder) / "version.py").read_text("utf-8"))
        except OSError:
            continue
        if found is not None:
            return minor_of(found[1])
    return None


def spark_minor() -> str:
    """The minor version of Spark whose functions :func:`builtins` returns."""
    selected = _selected.get() or installed_minor()
    return selected if selected in SUPPORTED else SUPPORTED[-1]


def builtins() -> dict[str, Builtin]:
    """Spark's functions by name."""
    return _builtins_of(spark_minor())


def versions_with(name: str) -> tuple[str, ...]:
    """The supported minor versions of Spark that have the function ``name``, which must be in lower case."""
    return tuple(minor for minor in SUPPORTED if name in _builtins_of(minor))


def hint_of_versions(name: str) -> str | None:
    """The hint for a function that only other versions of Spark have; None if no supported version has the function
    ``name``, which must be in lower case."""
    versions = versions_with(name)
    if not versions:
        return None
    verb = "has" if len(versions) == 1 else "have"
    return f"Spark {' and '.join(versions)} {verb} this function, but Spark {spark_minor()} does not"


def is_without_brackets(name: str) -> bool:
    """True if a query can call the function ``name``, which must be in lower case, without parentheses."""
    return name in WITHOUT_BRACKETS and (name == _GROUPING_ID or name in builtins())


@cache
def _builtins_of(minor: str) -> dict[str, Builtin]:
    """The functions from the file that ``python -m rw_sql.runtime.spark.builtin_functions`` wrote."""
    stored = json.loads((files(__package__) / "spark_functions" / f"{minor}.json").read_text("utf-8"))
    found = {
        name: Builtin(name, kind, least, most, *step)
        for kind, listed in stored["functions"].items()
        for name, (least, most, *step) in listed.items()
    }
    for name in _SYNTAX - found.keys():
        found[name] = Builtin(name, SCALAR, 0, None)
    return found
