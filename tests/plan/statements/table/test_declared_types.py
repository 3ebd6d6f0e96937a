"""The types with which the columns of a table of a database can be declared."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.changes import UpstreamColumn
from rw_sql.connectors.mysql_cdc.types import MysqlType, type_of
from tests.plan.canned import refused
from tests.plan.statements.table.test_cdc_tables import ORDERS, cdc_world
from tests.support.declared_types import columns_of
from tests.support.mysql_kinds import MYSQL_KINDS
from tests.support.postgres_kinds import POSTGRES_KINDS, postgres_type

if TYPE_CHECKING:
    from rw_sql.connectors.postgres_cdc.types import PostgresType
    from tests.plan.canned import CannedWorld

UNSOUND = (
    ("bigint", "INT"), ("integer", "SMALLINT"), ("double precision", "REAL"), ("integer", "REAL"), ("integer", "DATE"),
    ("date", "TIMESTAMP WITH TIME ZONE"), ("timestamp", "TIMESTAMP WITH TIME ZONE"), ("timestamptz", "TIMESTAMP"),
    ("timestamp", "DATE"), ("text", "INT"), ("text", "JSONB"), ("jsonb", "INT"), ("numeric", "BIGINT"),
    ("integer[]", "INT"), ("integer", "INT[]"), ("double precision[]", "REAL[]"), ("date[]", "INT[]"),
    ("bytea", "UUID"), ("point", "STRUCT<x DOUBLE, y DOUBLE>"),
)  # fmt: skip
"""Types of PostgreSQL, and declared types in which values would be wrong, or no value would fit."""

UNSOUND_OF_MYSQL = (
    ("bigint", "INT"), ("int unsigned", "INT"), ("double", "REAL"), ("date", "TIMESTAMP WITH TIME ZONE"),
    ("datetime", "TIMESTAMP WITH TIME ZONE"), ("timestamp", "TIMESTAMP"), ("bit(12)", "BOOLEAN"), ("int", "BOOLEAN"),
    ("year", "DATE"), ("int", "STRUCT<a INT>"), ("text", "JSONB"), ("decimal(10,2)", "BIGINT"),
)  # fmt: skip


def mysql_type(written: str) -> MysqlType:
    """The type that the connector finds in ``information_schema`` for a type of MYSQL_KINDS."""
    name = re.split(r"[( ]", written, maxsplit=1)[0]
    numbers = [int(number) for number in re.findall(r"[0-9]+", written)]
    precision, scale = numbers[:2] if name == "decimal" else (None, None)
    return type_of(name, written, precision, scale, is_json=name == "json")


def world_with(written: str, found: PostgresType | MysqlType, by_star: str | None) -> CannedWorld:
    world = cdc_world()
    column = UpstreamColumn(name="c", type=written, canonical=by_star, accepts=found.fits_into)
    world.upstream_tables["public.one"] = replace(ORDERS, table="public.one", columns=(ORDERS.columns[0], column))
    return world


def table_of(declared: str) -> str:
    return f"CREATE TABLE one (id INT PRIMARY KEY, c {declared}) FROM pg TABLE 'public.one'"


def test_every_documented_type_of_postgresql_is_accepted() -> None:
    for _, kind, declared, _ in columns_of(POSTGRES_KINDS):
        found = postgres_type(kind.type)
        assert found.fits_into(declared), (kind.type, declared)
        world_with(kind.type, found, kind.by_star).plan(table_of(declared))


def test_every_documented_type_of_mysql_is_accepted() -> None:
    for _, kind, declared, _ in columns_of(MYSQL_KINDS):
        found = mysql_type(kind.type)
        assert found.canonical == kind.by_star
        assert found.fits_into(declared), (kind.type, declared)
        world_with(kind.type, found, kind.by_star).plan(table_of(declared))


@pytest.mark.parametrize(
    ("found", "written", "declared"),
    [
        *((postgres_type(written), written, declared) for written, declared in UNSOUND),
        *((mysql_type(written), written, declared) for written, declared in UNSOUND_OF_MYSQL),
    ],
)
def test_a_type_that_would_change_values_or_hold_none_is_refused(
    found: PostgresType | MysqlType, written: str, declared: str
) -> None:
    assert not found.fits_into(declared)
    error = refused(world_with(written, found, "JSONB"), table_of(declared))
    assert error.message == f"Incompatible data type of column c: upstream it is {written}, here {declared}"


def test_an_added_column_may_have_every_documented_type() -> None:
    world = world_with("jsonb", postgres_type("jsonb"), "JSONB")
    world.run("CREATE TABLE one (id INT PRIMARY KEY) FROM pg TABLE 'public.one'")
    world.run("ALTER TABLE one ADD COLUMN c STRUCT<a INT>")
    definition = world.snapshot.find("table", "one")
    assert definition is not None
    assert "c STRUCT<a INT>" in definition.definition


@pytest.mark.parametrize("declared", ["INTERVAL", "INTERVAL[]", "STRUCT<a INTERVAL>", "MAP(VARCHAR, INTERVAL)"])
def test_an_interval_is_refused_with_the_type_to_declare(declared: str) -> None:
    error = refused(cdc_world(), table_of(declared))
    assert error.code == "RW206"
    assert error.message == 'column "c" has a type that cannot be stored: INTERVAL'
    assert error.hint == "declare it c CHARACTER VARYING, which stores an interval as text"
