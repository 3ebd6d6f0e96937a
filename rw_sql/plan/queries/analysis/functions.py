"""Describes Spark's functions: the kind of each function, and the numbers of arguments that the function accepts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

AGGREGATE, GENERATOR, TABLE, WINDOW, SCALAR = "aggregate", "generator", "table", "window", "scalar"

CASTS = frozenset({
    "bigint", "binary", "boolean", "date", "decimal", "double", "float", "int", "smallint", "string", "timestamp",
    "tinyint",
})  # fmt: skip
"""Functions that are casts. The output column gets the name of the argument."""

_SYNTAX = frozenset({
    "cast", "collate", "date_diff", "dateadd", "datediff", "extract", "identifier", "map", "named_struct", "overlay",
    "position", "struct", "substr", "substring", "timestampadd", "timestampdiff", "trim", "try_cast",
})  # fmt: skip
"""Functions whose calls Spark's grammar parses by special rules. The number of arguments of such a call is not
checked."""

TIME_WINDOWS = ("window", "session_window")
"""Functions whose call adds a column with the function's name to the scope of its select."""

UNIT_FIRST = frozenset({"date_add", "date_diff", "dateadd", "datediff", "timestampadd", "timestampdiff"})
"""Functions whose first argument may be a unit of time, which looks like a column name."""

UNITS = frozenset({
    "year", "quarter", "month", "week", "day", "dayofyear", "hour", "minute", "second", "millisecond", "microsecond",
})  # fmt: skip

WITHOUT_BRACKETS = frozenset({
    "current_catalog", "current_database", "current_date", "current_path", "current_schema", "current_time",
    "current_timestamp", "current_timezone", "current_user", "grouping__id", "localtimestamp", "session_user", "user",
})  # fmt: skip
"""The names of functions that Spark calls without parentheses if there is no column of the same name."""


@dataclass(frozen=True, slots=True)
class Builtin:
    """A Spark function. It accepts at least ``least`` and at most ``most`` arguments; there is no maximum if ``most``
    is None. ``step`` is the difference between two consecutive numbers of arguments that the function accepts."""

    name: str
    kind: str
    least: int
    most: int | None
    step: int = 1

    def takes(self, count: int) -> bool:
        """True if the function accepts that many arguments."""
        if self.name in _SYNTAX:
            return True
        if count < self.least or (self.most is not None and count > self.most):
            return False
        return (count - self.least) % self.step == 0

    @property
    def counts(self) -> str:
        """The numbers of arguments that the function accepts, in words."""
        if self.most is None:
            return f"at least {_arguments(self.least)}"
        if self.least == self.most:
            return "no arguments" if not self.least else _arguments(self.least)
        if self.most == self.least + 1 or self.step > 1:
            return " or ".join(map(str, range(self.least, self.most + 1, self.step))) + " arguments"
        return f"{self.least} to {self.most} arguments"


def _arguments(count: int) -> str:
    return f"{count} argument{'s' if count != 1 else ''}"


@cache
def builtins() -> dict[str, Builtin]:
    """Spark's functions by name, from the file written by ``python -m rw_sql.runtime.spark.builtin_functions``."""
    stored = json.loads((files(__package__) / "functions.json").read_text("utf-8"))
    found = {
        name: Builtin(name, kind, least, most, *step)
        for kind, listed in stored["functions"].items()
        for name, (least, most, *step) in listed.items()
    }
    for name in _SYNTAX - found.keys():
        found[name] = Builtin(name, SCALAR, 0, None)
    return found
