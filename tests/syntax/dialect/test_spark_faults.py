"""Spark's errors about a text, in rw_sql's form. The facts are those of Spark 4.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import Span, SqlError
from rw_sql.syntax.dialect.spark_faults import KnownNames, SparkFault, spark_error
from rw_sql.syntax.dialect.spark_messages import condensed
from rw_sql.syntax.lexing.tokens import span_of
from rw_sql.syntax.parsing.script import open_bracket, open_quote
from tests.conftest import FIXTURES, rendered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KNOWN = KnownNames(
    relations=lambda: ["orders", "totals"],
    functions=lambda: ["sum", "abs"],
    others=lambda: {"broker": "connection", "late": "sink"},
    columns=lambda relation: {"totals": ["customer", "amount", "_rw_bucket"]}.get(relation, []),
    is_database=lambda name: name != "no_such_database",
    parameters=("statement_timeout",),
)

FAULTS: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    # The text, the condition, the piece of the text that Spark points at, the parameters.
    (
        "SELECT custmer FROM orders",
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "custmer",
        {"objectName": "`custmer`", "proposal": "`customer`, `_rw_raw`, `id`"},
    ),
    (
        "SELECT 'custmer', o.custmer FROM orders AS o",
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "o.custmer",
        {"objectName": "`o`.`custmer`", "proposal": "`o`.`customer`, `o`.`id`"},
    ),
    (
        "SELECT zz FROM orders",
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "zz",
        {"objectName": "`zz`", "proposal": "`customer`, `_rw_bucket`, `id`"},
    ),
    ("SELECT zz", "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION", "zz", {"objectName": "`zz`"}),
    (
        "SELECT address.stret FROM orders",
        "UNRESOLVED_FIELD.WITH_SUGGESTION",
        "address.stret",
        {"fieldName": "`stret`", "columnPath": "`address`", "proposal": "`street`, `town`"},
    ),
    (
        "SELECT 'ordrs' FROM\n  default.ordrs",
        "TABLE_OR_VIEW_NOT_FOUND",
        "default.ordrs",
        {"relationName": "`default`.`ordrs`"},
    ),
    ("DROP TABLE nowhere", "TABLE_OR_VIEW_NOT_FOUND", "", {"relationName": "`spark_catalog`.`default`.`nowhere`"}),
    ("USE nowhere", "SCHEMA_NOT_FOUND", "", {"schemaName": "`spark_catalog`.`nowhere`"}),
    ("SELECT smu(id) FROM orders", "UNRESOLVED_ROUTINE", "smu(id)", {"routineName": "`smu`"}),
    (
        "SELECT id FROM orders, totals",
        "AMBIGUOUS_REFERENCE",
        "id",
        {"name": "`id`", "referenceNames": "[`orders`.`id`, `totals`.`id`]"},
    ),
    (
        "SELECT id, sum(amount) FROM orders GROUP BY customer",
        "MISSING_AGGREGATION",
        "id",
        {"expression": '"id"', "expressionAnyValue": '"any_value(id)"'},
    ),
    ("SELECT customer, sum(amount) FROM orders", "MISSING_GROUP_BY", "SELECT customer, sum(amount) FROM orders", {}),
    (
        "SELECT id FROM orders WHERE sum(amount) > 1",
        "INVALID_WHERE_CONDITION",
        "SELECT id FROM orders WHERE sum(amount) > 1",
        {"condition": '"(sum(amount) > 1)"', "expressionList": "sum(spark_catalog.default.orders.amount)"},
    ),
    ("SELECT sum(max(id)) FROM orders", "NESTED_AGGREGATE_FUNCTION", "max(id)", {}),
    (
        "SELECT upper(customer, 1) FROM orders",
        "WRONG_NUM_ARGS.WITHOUT_SUGGESTION",
        "upper(customer, 1)",
        {"functionName": "`upper`", "expectedNum": "1", "actualNum": "2"},
    ),
    (
        "SELECT id FROM orders UNION ALL SELECT id, customer FROM orders",
        "NUM_COLUMNS_MISMATCH",
        "",
        {"operator": "UNION", "firstNumColumns": "1", "invalidOrdinalNum": "second", "invalidNumColumns": "2"},
    ),
    ("SELECT CAST(id AS NUMERC) FROM orders", "UNSUPPORTED_DATATYPE", "", {"typeName": '"NUMERC"'}),
    (
        "SELECT x.* FROM orders",
        "CANNOT_RESOLVE_STAR_EXPAND",
        "x.*",
        {"targetString": "`x`", "columns": "`id`, `_rw_raw`, `customer`"},
    ),
    ("SELECT id FORM orders", "PARSE_SYNTAX_ERROR", "orders", {"error": "'orders'", "hint": ""}),
    ("SELECT id FROM orders GRUOP BY id", "PARSE_SYNTAX_ERROR", "BY", {"error": "'BY'", "hint": ""}),
    ("SELECT id FROM orders ORDER id", "PARSE_SYNTAX_ERROR", "id", {"error": "'id'", "hint": ""}),
    ("SELECT (id FROM orders", "PARSE_SYNTAX_ERROR", "FROM", {"error": "'FROM'", "hint": ""}),
    ("SELECT 'ann FROM orders", "PARSE_SYNTAX_ERROR", "'", {"error": "'''", "hint": ""}),
    ("SELECT id, FROM orders", "TRAILING_COMMA_IN_SELECT", "FROM orders", {}),
    (
        "SELECT id FROM elsewhere.totals",
        "TABLE_OR_VIEW_NOT_FOUND",
        "elsewhere.totals",
        {"relationName": "`elsewhere`.`totals`"},
    ),
    (
        "SELECT id FROM no_such_database.totals",
        "TABLE_OR_VIEW_NOT_FOUND",
        "no_such_database.totals",
        {"relationName": "`no_such_database`.`totals`"},
    ),
    (
        "SELECT id FROM no_such_database.nowhere",
        "TABLE_OR_VIEW_NOT_FOUND",
        "no_such_database.nowhere",
        {"relationName": "`no_such_database`.`nowhere`"},
    ),
    (
        "SELECT customer FROM totals ORDER BY amout",
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "amout",
        {"objectName": "`amout`", "proposal": "`customer`"},
    ),
    (
        "SELECT customer FROM totals AS t GROUP BY customer HAVING zz > 1",
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "zz",
        {"objectName": "`zz`", "proposal": "`customer`"},
    ),
    (
        "SELECT DISTINCT customer FROM totals ORDER BY amout",
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "amout",
        {"objectName": "`amout`", "proposal": "`customer`"},
    ),
    (
        "SELECT customer FROM (SELECT * FROM totals) ORDER BY zz",
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "zz",
        {"objectName": "`zz`", "proposal": "`customer`"},
    ),
    (
        "SELECT customer, count(*) FROM orders WHERE sum(amount) > 1 AND id > 2",
        "INVALID_WHERE_CONDITION",
        "SELECT customer, count(*) FROM orders WHERE sum(amount) > 1 AND id > 2",
        {"condition": '"(sum(amount) > 1)"', "expressionList": "sum(spark_catalog.default.orders.amount)"},
    ),
    ("SELECT id FROM broker", "TABLE_OR_VIEW_NOT_FOUND", "broker", {"relationName": "`broker`"}),
    ("DROP VIEW late", "TABLE_OR_VIEW_NOT_FOUND", "", {"relationName": "`spark_catalog`.`default`.`late`"}),
    ("INSERT INTO nowhere SELECT 1", "TABLE_OR_VIEW_NOT_FOUND", "nowhere", {"relationName": "`nowhere`"}),
    ("/* in/*.csv */ SELECT 1", "UNCLOSED_BRACKETED_COMMENT", "", {}),
    ("SHOW SOURCS", "PARSE_SYNTAX_ERROR", "SOURCS", {"error": "'SOURCS'", "hint": ""}),
)


def test_each_condition_has_its_sentence(recorded: Callable[[Path, str], None]) -> None:
    told = []
    for text, condition, piece, parameters in FAULTS:
        at = text.rindex(piece) if piece else -1
        span: Span | None = span_of(text, at, at + len(piece)) if piece else None
        fault = SparkFault(condition=condition, message="", parameters=parameters, span=span)
        error = spark_error(fault, text, KNOWN)
        assert error.span is not None
        assert error.hint is not None
        told.append(f"{text}\n\n{rendered(error)}")
    recorded(FIXTURES / "mistakes" / "spark_faults.txt", "\n\n".join(told))


@pytest.mark.parametrize(
    ("message", "sentence", "rest"),
    [
        (
            "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate it. SQLSTATE: 22012",
            "division by zero",
            "Use `try_divide` to tolerate it.",
        ),
        ("DELTA keeps its case\n\n'Project [_rw_raw#3]", "DELTA keeps its case", None),
        ("[X] It lacks [`_rw_raw`, id#3L, t._rw_bucket#4L] here. SQLSTATE: XX000", "it lacks [id] here", None),
        ("[X] Only [`_rw_raw`] is there; line 1 pos 7;\n'Project", "only [] is there", None),
    ],
)
def test_other_messages_are_condensed(message: str, sentence: str, rest: str | None) -> None:
    assert condensed(message, "SELECT id FROM orders") == (sentence, rest)


def test_a_hidden_column_that_the_text_names_is_shown() -> None:
    assert condensed("[X] It lacks [`_rw_raw`].", "SELECT _rw_raw FROM orders") == ("it lacks [`_rw_raw`]", None)


def test_delta_tells_a_column_it_cannot_name_only_in_its_message() -> None:
    message = (
        "[DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES] Found invalid character(s) among ' ,;{}()\n\t=' in the column "
        "names of your schema.\nInvalid column names: weird col.\nPlease use other characters and try again."
    )
    text = "CREATE TABLE odd (`weird col` INT) USING delta"
    error = spark_error(SparkFault(condition="DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES", message=message), text, KNOWN)
    assert error.message.startswith('column "weird col": Delta Lake does not allow spaces')
    assert (error.hint, error.column) == ("write weird_col", text.index("`") + 1)


def test_an_unknown_condition_keeps_sparks_sentence_and_its_name() -> None:
    fault = SparkFault(condition="SOME_CONDITION.HERE", message="[SOME_CONDITION.HERE] It cannot be. SQLSTATE: 42000")
    error = spark_error(fault, "SELECT 1", KNOWN)
    assert isinstance(error, SqlError)
    assert (error.code, error.message, error.hint) == ("RW409", "it cannot be [SOME_CONDITION.HERE]", None)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT 'a'", None),
        ("SELECT 'a", 7),
        ("SELECT 'it''s' , 'a''", 17),
        (r"SELECT 'a\'", 7),
        ('SELECT "a', 7),
        ("SELECT `a", 7),
        ("SELECT r'a", 8),
        ("SELECT 1 /* a", 9),
        ("SELECT 1 /* a */", None),
        ("SELECT 1 /* a/*.csv */", 9),
        ("SELECT 1 -- 'a", None),
    ],
)
def test_what_does_not_end(text: str, place: int | None) -> None:
    found = open_quote(text)
    assert (found.start if found is not None else None) == place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT (1)", None),
        ("SELECT (1", 7),
        ("SELECT ((1)", 7),
        ("SELECT ')' (", 11),
        ("SELECT 1) (", None),
        ("SELECT `a(`", None),
    ],
)
def test_the_bracket_that_is_not_closed(text: str, place: int | None) -> None:
    found = open_bracket(text)
    assert (found.start if found is not None else None) == place


@pytest.mark.parametrize(("name", "hint"), [("my vew", "did you mean `my view`?"), ("ordrs", 'did you mean "orders"?')])
def test_a_suggested_name_is_written_as_it_is_typed(name: str, hint: str) -> None:
    known = KnownNames(relations=lambda: ["orders", "my view"], functions=list, others=dict, parameters=())
    text = f"SELECT * FROM `{name}`"
    fault = SparkFault(
        condition="TABLE_OR_VIEW_NOT_FOUND", parameters={"relationName": f"`{name}`"}, message="", span=None
    )
    assert spark_error(fault, text, known).hint == hint
