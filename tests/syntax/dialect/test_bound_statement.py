"""Spark statements whose arguments name their objects."""

from __future__ import annotations

import pytest

from rw_sql.syntax.dialect.bound_statement import bound_statement
from rw_sql.syntax.dialect.spark_changes import changed_names


@pytest.mark.parametrize(
    ("text", "args", "named", "left"),
    [
        ("SELECT x FROM IDENTIFIER(:t), :p", {"t": "raw.a", "p": 1}, "SELECT x FROM raw.a, :p", {"p": 1}),
        ("SELECT :t FROM identifier ( :t )", {"t": "a"}, "SELECT :t FROM a", {"t": "a"}),
        ("SELECT ? FROM IDENTIFIER(?) WHERE x = ?", [1, "`my a`", 3], "SELECT ? FROM `my a` WHERE x = ?", [1, 3]),
        ("FROM IDENTIFIER(:s || '.' /* ? */ || :t)", {"s": "public", "t": "a"}, "FROM public.a", {}),
        ("FROM IDENTIFIER(r'a' \"b\")WHERE true", None, "FROM ab WHERE true", None),
        ("FROM IDENTIFIER('`it\\'s`')", None, "FROM `it's`", None),
        ("FROM IDENTIFIER('left')", {}, "FROM `left`", {}),
        ("FROM IDENTIFIER('`a``b`')", None, "FROM `a``b`", None),
    ],
)  # fmt: skip
def test_names_stand_in_place_of_identifier_clauses(text: str, args: object, named: str, left: object) -> None:
    found = bound_statement(text, args)
    assert (found.named, found.args) == (named, left)


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("FROM IDENTIFIER(:t)", {"t": 3}),
        ("FROM IDENTIFIER(:t)", {}),
        ("FROM IDENTIFIER(?)", []),
        ("FROM IDENTIFIER(a_variable)", {"t": "a"}),
        ("FROM IDENTIFIER(upper(:t))", {"t": "a"}),
        ("FROM IDENTIFIER('not a name')", None),
        ("FROM IDENTIFIER('a\\n')", None),
        ("SELECT 'IDENTIFIER(:t)', `IDENTIFIER(:t)` -- IDENTIFIER(:t)", {"t": "a"}),
        ("CREATE TABLE identifier (a INT)", {"t": "a"}),
    ],
)
def test_other_clauses_remain(text: str, args: object) -> None:
    found = bound_statement(text, args)
    assert (found.named, found.args) == (text, args)


def test_keyword_arguments_of_a_call_name_objects() -> None:
    found = bound_statement(
        "SELECT {c} FROM IDENTIFIER({t}) JOIN {df}", None, {"t": "public.a", "c": 1, "df": object()}
    )
    assert found.named == "SELECT {c} FROM public.a JOIN {df}"
    assert found.complete == "SELECT ___ FROM public.a JOIN ____"
    assert bound_statement("FROM IDENTIFIER({t})", None, {"t": "`{a}`"}).named == "FROM IDENTIFIER({t})"


@pytest.mark.parametrize(
    ("text", "args", "verb", "parts", "place"),
    [
        ("DROP VIEW IDENTIFIER(:v)", {"v": "totals"}, "DROP VIEW", ("totals",), "IDENTIFIER(:v)"),
        ("DELETE FROM\nIDENTIFIER(?) WHERE a = ?", ["m.t", 1], "DELETE FROM", ("m", "t"), "IDENTIFIER(?)"),
        ("CREATE OR REPLACE VIEW IDENTIFIER(:s || '.v') AS SELECT :s", {"s": "m"}, "CREATE OR REPLACE VIEW", ("m", "v"),
         "IDENTIFIER(:s || '.v')"),
        ("INSERT INTO t SELECT :a, IDENTIFIER(:c)", {"a": "long text", "c": "x"}, "INSERT", ("t",), "t"),
        ("EXECUTE IMMEDIATE :s", {"s": "DROP VIEW IDENTIFIER('totals')"}, "DROP VIEW", ("totals",), ":s"),
    ],
)  # fmt: skip
def test_the_names_that_a_statement_changes_are_those_of_its_arguments(
    text: str, args: object, verb: str, parts: tuple[str, ...], place: str
) -> None:
    found = bound_statement(text, args)
    (change,) = changed_names(found.complete)
    assert (change.verb, change.parts) == (verb, parts)
    span = found.place(change.span)
    assert text[span.start : span.end] == place
    assert span.line == text.count("\n", 0, span.start) + 1
