"""Provides the variables of a cell. They come from the cell's options, from ``\\set``, and from the notebook."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal
from numbers import Integral, Rational, Real
from typing import TYPE_CHECKING, Any

from rw_sql.syntax.variables.references import UndefinedVariableError

if TYPE_CHECKING:
    from rw_sql.errors import SqlError


class CellVariables(Mapping[str, str]):
    """Maps the names of a cell's variables to their text. Variables in ``own`` take precedence over the notebook's
    variables. The value None in ``own`` means that the variable is unset, even if the notebook has it. A notebook's
    variable is included only if its value is a string, number, boolean, date or time, and if its name does not begin
    with an underscore."""

    def __init__(self, own: Mapping[str, str | None], namespace: Mapping[str, Any]) -> None:
        self._own = own
        self._namespace = namespace

    def __getitem__(self, name: str) -> str:
        if name in self._own:
            value = self._own[name]
        else:
            value = None if name.startswith("_") else as_text(self._namespace.get(name))
        if value is None:
            raise KeyError(name)
        return value

    def unusable_type(self, name: str) -> str | None:
        """The name of the type of a notebook's variable, if its value has no text form. None for all other
        variables."""
        if name in self._own or name.startswith("_") or name not in self._namespace:
            return None
        value = self._namespace[name]
        return type(value).__name__ if as_text(value) is None else None

    def __iter__(self) -> Iterator[str]:
        return (name for name in dict.fromkeys([*self._own, *self._namespace]) if self.get(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def explain_type(error: SqlError, known: CellVariables) -> None:
    """Explains an error about an undefined variable. If the notebook has a variable of this name, but its value has
    no text form, the error's message then names the type of the value."""
    if not isinstance(error, UndefinedVariableError):
        return
    kind = known.unusable_type(error.name)
    if kind is not None:
        error.message = f'the notebook\'s variable "{error.name}" has a value of type {kind}, which has no text form'
        error.hint = (
            rf"assign a string, number, boolean or time; or --var {error.name}=VALUE or \set {error.name} VALUE"
        )


def as_text(value: object) -> str | None:
    """The text that replaces a variable with this Python value; None if the value has no text form."""
    match _as_python(value):
        case bool() as flag:
            return "true" if flag else "false"
        case str() as text:
            return text
        case Decimal() | Integral() as number:
            return str(number)
        case Rational():
            return None  # A fraction is written as a division, whose value depends on the text around it.
        case Real() as number:
            return str(number)
        case dt.datetime() as at:
            return None if at != at else at.isoformat(" ")  # pandas.NaT, a datetime, is not equal to itself.
        case dt.date() | dt.time() as at:
            return at.isoformat()
        case _:
            return None


def _as_python(value: object) -> object:
    """Converts NumPy's booleans and times to Python's types. Other values are returned unchanged. NumPy's numbers
    need no conversion: Python's ``numbers`` module recognizes them, and their text has no superfluous digits."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return value
    if isinstance(value, numpy.bool_):
        return bool(value)
    if isinstance(value, numpy.datetime64):
        made = value.item()
        # For a unit that datetime lacks, such as nanoseconds, item() returns the number of units.
        return value.astype("datetime64[us]").item() if isinstance(made, int) else made
    return value
