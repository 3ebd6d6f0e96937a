"""The values of ``:name`` in a cell."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from IPython.core.error import UsageError

from rw_sql.magics.arguments import Arguments, read_arguments, read_assignment
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
    assert read_arguments("--yes --var a=1 --var 'b=x y'").variables == {"a": "1", "b": "x y"}
    assert read_arguments("-o df --yes").frame_name == "df"
    assert read_arguments("result << --yes") == Arguments(result_name="result", is_confirmed=True)
    for wrong in ("--var", "--var a", "--var a-b=1", "-o", "-o 1x", "a b <<", "<<", "--var a='x"):
        with pytest.raises(UsageError):
            read_arguments(wrong)


def test_a_line_may_assign_its_result() -> None:
    assert read_assignment("totals << SELECT 1") == ("totals", "SELECT 1")
    assert read_assignment("SELECT 1 << 2") == (None, "SELECT 1 << 2")
    assert read_assignment("SHOW JOBS") == (None, "SHOW JOBS")
