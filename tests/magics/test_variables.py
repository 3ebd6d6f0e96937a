"""The values of ``:name`` in a cell."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from IPython.core.error import UsageError

from rw_sql.errors import SqlError
from rw_sql.magics.arguments import Arguments, read_arguments, read_assignment
from rw_sql.magics.cell import StatementMagic
from rw_sql.magics.variables import CellVariables, explain_type
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


def test_values_of_numpy_and_pandas_are_numbers_booleans_and_times() -> None:
    namespace = {
        "least": np.int64(10),
        "rate": np.float32(0.1),
        "share": np.float64(0.25),
        "is_new": np.bool_(True),
        "day": np.datetime64("2024-01-02"),
        "at": np.datetime64("2024-01-02T03:04:05.123456789"),
        "seen": pd.Timestamp("2024-01-02 03:04:05"),
    }
    known = CellVariables({}, namespace)
    assert dict(known) == {
        "least": "10",
        "rate": "0.1",
        "share": "0.25",
        "is_new": "true",
        "day": "2024-01-02",
        "at": "2024-01-02 03:04:05.123456",
        "seen": "2024-01-02 03:04:05",
    }


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), "object"),
        (None, "NoneType"),
        ([1], "list"),
        (np.array([1]), "ndarray"),
        (np.datetime64("NaT"), "datetime64"),
        (pd.NaT, "NaTType"),
        (Fraction(1, 3), "Fraction"),
        (1j, "complex"),
    ],
)
@pytest.mark.parametrize("text", ["SELECT :x", "\\echo :x"])
def test_the_error_for_a_value_without_text_names_its_type(value: object, kind: str, text: str) -> None:
    known = CellVariables({}, {"x": value})
    with pytest.raises(SqlError) as caught:
        expand(text, known)
    explain_type(caught.value, known)
    assert caught.value.code == "RW250"
    assert caught.value.message == f'the notebook\'s variable "x" has a value of type {kind}, which has no text form'


@pytest.mark.parametrize(("own", "namespace"), [({}, {}), ({"x": None}, {"x": [1]}), ({}, {"y": [1]})])
def test_a_variable_that_is_not_set_is_reported_as_such(
    own: dict[str, str | None], namespace: dict[str, object]
) -> None:
    known = CellVariables(own, namespace)
    with pytest.raises(SqlError) as caught:
        expand("SELECT :x", known)
    explain_type(caught.value, known)
    assert caught.value.message == 'variable "x" is not set'


def test_a_cell_reports_the_type_of_a_value_without_text() -> None:
    magic = StatementMagic(SimpleNamespace(user_ns={"x": [1]}))
    with pytest.raises(SqlError, match="has a value of type list"):
        magic.run("", "SELECT :x")


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
