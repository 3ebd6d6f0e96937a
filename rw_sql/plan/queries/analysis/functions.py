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
