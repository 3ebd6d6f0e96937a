"""CREATE TABLE over records that describe changes of rows: the key by which they are read, and the refusals."""

from __future__ import annotations

import pytest

from rw_sql.model.definitions import definition_of, log_columns, primary_key, reader_definition, source_definition
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateSource
from tests.plan.canned import refused
from tests.plan.tables import create_table, source, table, tables_world

FORMATS = ("UPSERT", "DEBEZIUM", "MAXWELL", "CANAL")


def changes(
    format: str, columns: str = "id INT PRIMARY KEY, name VARCHAR", options: str = "", include: str = ""
) -> str:
    text = create_table(columns, include=include)
    return text.replace("FORMAT PLAIN ENCODE JSON", f"FORMAT {format} ENCODE JSON {options}")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("columns", ["id INT PRIMARY KEY, name VARCHAR", "id INT, name VARCHAR, PRIMARY KEY (id)"])
def test_a_tables_source_is_read_by_its_key(format: str, columns: str) -> None:
    world = tables_world(changes(format, columns))
    made = definition_of(source(world))
    assert primary_key(made) == table(world).primary_key == ("id",)
    # The reader's definition has no properties.
    assert primary_key(source_definition(reader_definition(source(world).definition))) == ("id",)
    assert [name for name, _ in log_columns(made)][-1] == "_rw_op"
    assert table(world).query == "SELECT `id`, `name` FROM `t`"


@pytest.mark.parametrize("format", FORMATS)
def test_a_table_of_changes_is_moved_like_any_other(format: str) -> None:
    world = tables_world(changes(format))
    world.run("ALTER TABLE t UNSAFE SET (topic = 'new')", "ALTER TABLE t SET source_rate_limit = 7")
    assert "topic = 'new'" in table(world).definition
    assert primary_key(definition_of(source(world))) == ("id",)
    shown = world.plan("SHOW CREATE TABLE t").table
    assert shown is not None
    recreated = tables_world(str(shown.rows[0][1]))
    assert (table(recreated).definition, source(recreated).definition) == (
        table(world).definition,
        source(world).definition,
    )
    # On its own such a source cannot be created, as in RisingWave.
    alone = parse_statement(source(world).definition)
    assert isinstance(alone, CreateSource)
    assert refused(tables_world(), source(world).definition).message == f"can't CREATE SOURCE with FORMAT {format}"


def test_generated_columns_and_defaults_are_the_tables() -> None:
    world = tables_world(changes("DEBEZIUM", "id INT PRIMARY KEY, n INT DEFAULT 7, twice INT AS n * 2"))
    assert [column.name for column in definition_of(source(world)).columns] == ["id", "n"]
    assert primary_key(definition_of(source(world))) == ("id",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            changes("UPSERT", "id INT"),
            "primary key must be specified when creating table with FORMAT UPSERT ENCODE JSON",
        ),
        (changes("CANAL", "id INT"), "primary key must be specified when creating table with FORMAT CANAL ENCODE JSON"),
        (changes("UPSERT", include="INCLUDE key AS k"), 'only "k" can be used as primary key'),
        *(
            (changes(f, include="INCLUDE offset AS at"), f"FORMAT {f} forbids additional columns, but got at")
            for f in FORMATS[1:]
        ),
        *(
            (
                changes(f, "id INT, twice INT AS id * 2, PRIMARY KEY (twice)"),
                f'column "twice" of the primary key is not in the records, but FORMAT {f} needs it to delete rows',
            )
            for f in FORMATS
        ),
        (
            changes("MAXWELL", options="(ignore_key = 'true')"),
            "unknown format_encode_options for MAXWELL JSON: ignore_key",
        ),
        (
            changes("DEBEZIUM", options="(timestamptz.handling.mode = 'seconds')"),
            "unrecognized timestamptz.handling.mode value 'seconds'",
        ),
        (changes("DEBEZIUM_MONGO"), 'connector "kafka" does not support format DEBEZIUM_MONGO'),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, message: str) -> None:
    assert refused(tables_world(), text).message == message


def test_the_records_key_as_it_is() -> None:
    world = tables_world(changes("UPSERT", "name VARCHAR, PRIMARY KEY (k)", include="INCLUDE key AS k"))
    assert table(world).primary_key == primary_key(definition_of(source(world))) == ("k",)
