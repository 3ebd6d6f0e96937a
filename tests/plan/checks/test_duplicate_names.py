"""Names that Spark and Delta Lake consider equal, because they ignore case, are refused at the second name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rw_sql.connectors.changes import UpstreamColumn
from rw_sql.connectors.schemas.client import RegisteredSchema
from rw_sql.errors import SqlError
from rw_sql.plan.checks.column_names import duplicate_fields, first_duplicate
from tests.plan.canned import HERE
from tests.plan.statements.table.test_cdc_tables import ORDERS, TABLE, cdc_world
from tests.plan.tables import tables_world

KAFKA = f"WITH (connector = 'kafka', topic = 'old', properties.bootstrap.server = '{HERE}') FORMAT PLAIN ENCODE JSON"


@pytest.mark.parametrize(
    ("names", "duplicate"),
    [
        (("a", "b"), None),
        (("userId", "id", "userid"), ("userId", 2)),
        (("Größe", "GRÖSSE"), None),
        (("Größe", "GRÖẞE"), ("Größe", 1)),
        # Java's equalsIgnoreCase, by which Spark compares the fields of a STRUCT.
        (("ı", "I"), ("ı", 1)),
        (("İ", "i"), ("İ", 1)),
        (("maſs", "MASS"), ("maſs", 1)),
        (("\u212a", "k"), ("\u212a", 1)),
        (("ς", "σ"), ("ς", 1)),
        (("\u00b5", "\u03bc"), ("\u00b5", 1)),
        # Python's and Java's lower case.
        (("İ", "i\u0307"), ("İ", 1)),
        (("", " "), None),
    ],
)
def test_names_are_equal_as_to_spark(names: tuple[str, ...], duplicate: tuple[str, int] | None) -> None:
    assert first_duplicate(names) == duplicate


@pytest.mark.parametrize(
    ("statement", "caret", "message"),
    [
        ('CREATE SOURCE s ("userId" INT, "userid" INT) ', '"userid"', 'columns "userId" and "userid" differ only in'),
        ('CREATE SOURCE s (id INT, "ı" INT, i INT) ', "i INT", 'columns "ı" and "i" differ only in case'),
        ("CREATE SOURCE s (a INT, a INT) ", "a INT) WITH", 'column "a" is given twice'),
        ('CREATE SOURCE s (k INT) INCLUDE key AS "K" ', "key AS", 'columns "k" and "K" differ only in case'),
        (
            'CREATE SOURCE s (id INT) INCLUDE key AS "K" INCLUDE partition AS k ', "partition AS",
            'columns "K" and "k" differ only in case',
        ),
        ('CREATE TABLE s (k INT PRIMARY KEY, "K" INT) ', '"K" INT', 'columns "k" and "K" differ only in case'),
        (
            'CREATE SOURCE s (x STRUCT<"userId" INT, userid INT>) ', "userid INT>",
            'column "x": fields "userId" and "userid" differ only in case',
        ),
        (
            "CREATE TABLE s (id INT PRIMARY KEY, x STRUCT<l STRUCT<a INT, \"A\" INT>[]>) ", '"A"',
            'column "x": fields "a" and "A" differ only in case',
        ),
        (
            "CREATE SOURCE s (x MAP(VARCHAR, STRUCT<a INT, a INT>)) ", "a INT>)", 'field "a" is defined more than once',
        ),
    ],
)  # fmt: skip
def test_the_caret_is_on_the_second_name(statement: str, caret: str, message: str) -> None:
    world = tables_world()
    text = statement + KAFKA
    with pytest.raises(SqlError) as caught:
        world.run(text)
    assert message in caught.value.message
    assert caught.value.span is not None
    assert text[caught.value.span.start :].startswith(caret)
    assert world.snapshot.find("source", "s") is None


def test_names_in_different_structs_may_differ_only_in_case() -> None:
    world = tables_world()
    world.run(f'CREATE SOURCE s (x STRUCT<"userId" INT, y STRUCT<userid INT>>, userid INT) {KAFKA}')
    assert world.snapshot.find("source", "s") is not None


def test_an_added_and_a_renamed_column_differ_from_the_others() -> None:
    world = tables_world()
    world.run(f'CREATE TABLE t (id INT PRIMARY KEY, "userId" INT, "ı" INT) {KAFKA}')
    for statement, caret in (
        ("ALTER TABLE t ADD COLUMN userid INT", "userid"),
        ("ALTER TABLE t ADD COLUMN i INT", "i INT"),
        ('ALTER TABLE t ADD COLUMN x STRUCT<a INT, "A" INT>', '"A"'),
        ("ALTER TABLE t RENAME COLUMN id TO i", "ALTER"),
    ):
        with pytest.raises(SqlError) as caught:
            world.run(statement)
        assert caught.value.span is not None
        assert statement[caught.value.span.start :].startswith(caret), statement


def test_columns_that_the_statement_does_not_list_are_refused_at_the_object_s_name() -> None:
    world = cdc_world()
    word = UpstreamColumn(name="Word", type="text", canonical="CHARACTER VARYING")
    world.upstream_tables = {"public.orders": replace(ORDERS, columns=(*ORDERS.columns, word))}
    with pytest.raises(SqlError, match='columns "word" and "Word" differ only in case') as caught:
        world.run(TABLE)
    assert caught.value.span is not None
    assert TABLE[caught.value.span.start : caught.value.span.end] == "orders"
    world = tables_world()
    both = {"userId": {"type": "integer"}, "userid": {"type": "integer"}}
    text = f"CREATE SOURCE s (*) {KAFKA} (schema.registry = 'http://registry')"
    for properties in (both, {"x": {"type": "object", "properties": both}}):
        schema = {"type": "object", "properties": properties}
        world.schemas["old-value"] = RegisteredSchema(id=1, kind="JSON", text=json.dumps(schema))
        with pytest.raises(SqlError, match='"userId" and "userid" differ only in case') as caught:
            world.run(text)
        assert caught.value.span is not None
        assert text[caught.value.span.start : caught.value.span.end] == "s"


def test_a_view_stores_no_struct_with_twins() -> None:
    def schema(*names: str) -> str:
        fields = [{"name": name, "type": "integer", "nullable": True, "metadata": {}} for name in names]
        array = {"type": "array", "containsNull": True, "elementType": {"type": "struct", "fields": fields}}
        columns = [{"name": "x", "type": array}, {"name": "b", "type": "integer"}]
        return json.dumps({"type": "struct", "fields": columns})

    assert duplicate_fields(schema("a", "b")) is None
    told = 'fields "a" and "A" differ only in case, which Spark and Delta Lake ignore'
    assert duplicate_fields(schema("a", "A")) == told
    assert duplicate_fields(schema("a", "a")) == 'field "a" is defined more than once'
