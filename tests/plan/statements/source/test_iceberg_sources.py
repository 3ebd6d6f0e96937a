"""Sources of an Iceberg table whose catalog is real: their columns are declared, or those of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rw_sql.cli.checking.check import check_script
from rw_sql.errors import SqlError
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.definitions import source_definition
from rw_sql.plan.statements.replace.least_change import least_change
from rw_sql.syntax import canonical_type, parse_statement, render
from rw_sql.syntax.statements import CreateSource
from tests.connectors.iceberg.lake import NAME, Lake
from tests.plan.canned import CannedWorld

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("Word", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("bare", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
        ("inner", pa.struct([("a b", pa.int32()), ("t", pa.float64())])),
        ("raw", pa.binary()),
        ("id2", pa.uuid()),
    ]
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(folder=tmp_path)
    made.create(_COLUMNS)
    return made


def stored(world: CannedWorld, name: str) -> CreateSource:
    source = world.snapshot.find("source", name)
    assert isinstance(source, SourceRecord)
    return source_definition(source.definition)


def test_a_source_without_columns_has_those_of_the_table(lake: Lake) -> None:
    world = CannedWorld()
    world.run(f"CREATE SOURCE i INCLUDE offset AS seq WITH (connector = 'iceberg', {lake.clause})")
    made = stored(world, "i")
    assert {column.name: canonical_type(column.data_type) for column in made.columns} == {
        "id": "BIGINT",
        "Word": "CHARACTER VARYING",
        "price": "NUMERIC(10, 2)",
        "at": "TIMESTAMP WITH TIME ZONE",
        "bare": "TIMESTAMP",
        "tags": "CHARACTER VARYING[]",
        "inner": 'STRUCT<"a b" INT, t DOUBLE>',
        "raw": "BYTEA",
        "id2": "CHARACTER VARYING",
    }
    assert parse_statement(render(made)) == made


def test_a_folder_that_leaves_the_columns_out_is_as_the_catalog(lake: Lake) -> None:
    world = CannedWorld()
    text = f"CREATE SOURCE i WITH (connector = 'iceberg', {lake.clause})"
    world.run(text)
    wanted = parse_statement(text)
    assert isinstance(wanted, CreateSource)
    assert least_change(stored(world, "i"), wanted, {}).is_empty
    other = parse_statement(text.replace("CREATE SOURCE i", "CREATE SOURCE i (id BIGINT)"))
    assert isinstance(other, CreateSource)
    assert least_change(stored(world, "i"), other, {}).refusal == "the columns of a source cannot change"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("(id INT)", f'column "id" of source "i" cannot be read: column "id" of table {NAME} is BIGINT'),
        ("", 'connector "iceberg" does not support format NONE\nLINE 1'),
        ("(idd BIGINT)", f'column "idd" of source "i" cannot be read: table {NAME} has no column "idd"'),
    ],
)
def test_declared_columns_are_compared(lake: Lake, columns: str, message: str) -> None:
    format = "" if columns else " FORMAT NONE ENCODE NONE"
    with pytest.raises(SqlError) as refused:
        CannedWorld().run(f"CREATE SOURCE i {columns} WITH (connector = 'iceberg', {lake.clause}){format}")
    assert message in refused.value.render()
    assert "LINE 1" in refused.value.render()


def test_a_table_that_is_not_there(lake: Lake) -> None:
    with pytest.raises(SqlError) as missing:
        CannedWorld().run(f"CREATE SOURCE i WITH (connector = 'iceberg', {lake.clause.replace('orders', 'order')})")
    assert 'the upstream of source "i" has no table "db.order"' in missing.value.render()


def test_a_check_without_the_catalog_leaves_the_columns_open() -> None:
    text = (
        "CREATE SOURCE i WITH (connector = 'iceberg', catalog.uri = 'http://lake:8181', table.name = 'db.t');\n"
        "CREATE MATERIALIZED VIEW v AS SELECT anything FROM i;"
    )
    assert [found.error for found in check_script(text, "a.sql") if found.error is not None] == []
    wrong = text.replace("table.name", "table.nam")
    assert 'did you mean "table.name"' in next(
        found.error.render() for found in check_script(wrong, "a.sql") if found.error is not None
    )
