"""What a cell's ``:name`` stands for."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from IPython.core.error import UsageError

from rw_sql.magics.cell import _read_arguments
from rw_sql.magics.variables import CellVariables
from rw_sql.syntax.variables.expand import expand


def test_own_variables_come_before_those_of_the_notebook() -> None:
    namespace = {
        "customer": "ann",
        "least": 10,
        "rate": Decimal("1.50"),
        "is_new": True,
        "day": dt.date(2024, 1, 2),
        "at": dt.datetime(2024, 1, 2, 3, 4),
        "frame": object(),
        "_hidden": "x",
        "gone": "x",
    }
    known = CellVariables({"customer": "bob", "gone": None}, namespace)
    text = "SELECT :'customer', :least, :rate, :is_new, :'day', :'at', :{?frame}, :{?_hidden}, :{?gone}"
    assert expand(text, known).text == (
        "SELECT 'bob', 10, 1.50, true, '2024-01-02', '2024-01-02 03:04:00', FALSE, FALSE, FALSE"
    )
    assert sorted(known) == ["at", "customer", "day", "is_new", "least", "rate"]


def test_options_of_a_cell() -> None:
    assert _read_arguments("--yes --var a=1 --var 'b=x y'").variables == {"a": "1", "b": "x y"}
    for wrong in ("--var", "--var a", "--var a-b=1"):
        with pytest.raises(UsageError):
            _read_arguments(wrong)
