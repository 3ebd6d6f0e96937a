"""Changes of a table's columns that leave the rows and readers of the table as they are."""

from __future__ import annotations

import pytest

from rw_sql.plan.statements.replace.least_change import LeastChange, least_change
from rw_sql.syntax import parse_statement, render
from tests.support.offline_warehouse import OfflineWarehouse

KAFKA = "connector = 'kafka', topic = 't', properties.bootstrap.server = '127.0.0.1:9092'"
SHOP = (
    "CREATE SOURCE pg WITH (connector = 'postgres-cdc', hostname = 'h', username = 'u', database.name = 'd', "
    "slot.name = 'rw', publication.name = 'rw');\n"
)
READERS = "CREATE MATERIALIZED VIEW v AS SELECT id FROM t;\n" + (
    "CREATE SINK k FROM v WITH (connector = 'kafka', topic = 'o', properties.bootstrap.server = '127.0.0.1:9092', "
    "primary_key = 'id') FORMAT UPSERT ENCODE JSON;\n"
)


def table(columns: str, after: str = "", form: str = "PLAIN ENCODE JSON") -> str:
    return f"CREATE TABLE t ({columns}) {after} WITH ({KAFKA}) FORMAT {form}"


def captured(columns: str) -> str:
    return f"CREATE TABLE t ({columns}) FROM pg TABLE 'public.t'"


def change(current: str, wanted: str) -> LeastChange:
    return least_change(parse_statement(current), parse_statement(wanted), {})  # type: ignore[arg-type]


WATERMARK = "WATERMARK FOR {0} AS {0} - INTERVAL '5 seconds'"
RENAMED = {
    "the key": ("id INT PRIMARY KEY, a INT", "id2 INT FROM id PRIMARY KEY, a INT", "", "id TO id2"),
    "a part of the key": (
        "x INT, y INT, PRIMARY KEY (x, y)",
        "x INT, z INT FROM y, PRIMARY KEY (x, z)",
        "",
        "y TO z",
    ),
    "what a column is computed from": (
        "id INT PRIMARY KEY, x INT, d INT AS x + 1",
        "id INT PRIMARY KEY, x2 INT FROM x, d INT AS x2 + 1",
        "",
        "x TO x2",
    ),
    "what the watermark is computed from": (
        f"at TIMESTAMP, {WATERMARK.format('at')}",
        f"ts TIMESTAMP FROM at, {WATERMARK.format('ts')}",
        "APPEND ONLY",
        "at TO ts",
    ),
}


@pytest.mark.parametrize(("before", "wanted", "after", "names"), RENAMED.values(), ids=RENAMED)
def test_a_renamed_column_is_renamed_wherever_the_definition_names_it(
    before: str, wanted: str, after: str, names: str
) -> None:
    found = change(table(before, after), table(wanted, after))
    assert (found.refusal, [render(each) for each in found.statements]) == (
        "",
        [f"ALTER TABLE t RENAME COLUMN {names}"],
    )


def test_a_version_column_is_renamed() -> None:
    versions = "ON CONFLICT DO UPDATE FULL WITH VERSION COLUMN ({})"
    before = table("id INT PRIMARY KEY, n INT", versions.format("n"))
    wanted = table("id INT PRIMARY KEY, m INT FROM n", versions.format("m"))
    found = change(before, wanted)
    assert not found.refusal
    assert [render(each) for each in found.statements] == ["ALTER TABLE t RENAME COLUMN n TO m"]


def test_a_column_is_renamed_after_a_column_is_dropped_in_which_its_name_is_ambiguous() -> None:
    before = "id INT PRIMARY KEY, a INT[], d INT[] AS transform(a, b -> b + 1)"
    assert [render(each) for each in change(table(before), table("id INT PRIMARY KEY, b INT[] FROM a")).statements] == [
        "ALTER TABLE t DROP COLUMN d",
        "ALTER TABLE t RENAME COLUMN a TO b",
    ]


@pytest.mark.parametrize(
    ("before", "wanted", "refusal"),
    [
        (
            "id INT PRIMARY KEY, x INT, d INT AS x + 1",
            "id INT PRIMARY KEY, x2 INT FROM x, d INT AS x2 + 2",
            "column d is INT AS x2 + 1 in the table, but INT AS x2 + 2 in the new definition",
        ),
        ("id INT PRIMARY KEY, x INT", "id2 INT FROM id, x INT PRIMARY KEY", "PRIMARY KEY cannot change"),
        ("id INT PRIMARY KEY, x INT", "x INT", "PRIMARY KEY cannot change"),
        ("id INT, x INT, PRIMARY KEY (id, x)", "id INT PRIMARY KEY", "PRIMARY KEY cannot change"),
        (
            "id INT PRIMARY KEY, a INT[], d INT[] AS transform(a, b -> b + 1)",
            "id INT PRIMARY KEY, b INT[] FROM a, d INT[] AS transform(b, b -> b + 1)",
            'in transform(a, b -> b + 1) "a" or "b" may refer to something other than the column',
        ),
    ],
    ids=[
        "the computed column changes too",
        "another key",
        "no key",
        "a part of the key",
        "a name that has another meaning",
    ],
)
def test_a_renamed_column_hides_no_other_difference(before: str, wanted: str, refusal: str) -> None:
    assert change(table(before), table(wanted)).refusal == refusal


@pytest.mark.parametrize(
    ("columns", "statements"),
    [
        ("id INT PRIMARY KEY, a VARCHAR, b INT", ["ADD COLUMN b INT"]),
        ("id INT PRIMARY KEY", ["DROP COLUMN a"]),
        ("id INT PRIMARY KEY, c VARCHAR FROM a", ["RENAME COLUMN a TO c"]),
        ("id2 INT FROM id PRIMARY KEY, b INT", ["DROP COLUMN a", "RENAME COLUMN id TO id2", "ADD COLUMN b INT"]),
        ("id INT PRIMARY KEY, a2 INT FROM a", ["DROP COLUMN a", "ADD COLUMN a2 INT FROM a"]),
    ],
)
def test_the_columns_of_a_captured_table_change_in_place(columns: str, statements: list[str]) -> None:
    wanted = captured(columns)
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": SHOP + captured("id INT PRIMARY KEY, a VARCHAR") + ";\n"})
    before = warehouse.snapshot
    folder = {"a.sql": f"{SHOP}{wanted};\n"}
    assert [(c.action, c.texts) for c in warehouse.changes(folder)] == [
        ("alter", tuple(f"ALTER TABLE t {statement}" for statement in statements))
    ]
    warehouse.apply(folder)
    assert warehouse.changes(folder) == ()
    warehouse.snapshot = before
    warehouse.run(wanted.replace("CREATE", "CREATE OR REPLACE"))
    assert warehouse.changes(folder) == ()


def test_the_readers_of_a_captured_table_that_gets_a_column_are_kept() -> None:
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": f"{SHOP}{captured('id INT PRIMARY KEY, a VARCHAR')};\n{READERS}"})
    folder = {"a.sql": f"{SHOP}{captured('id INT PRIMARY KEY, a VARCHAR, b INT')};\n{READERS}"}
    assert [(c.action, c.name) for c in warehouse.changes(folder)] == [("alter", "t")]


@pytest.mark.parametrize(
    ("wanted", "refusal"),
    [
        (
            captured("id INT PRIMARY KEY, a BIGINT"),
            "column a is CHARACTER VARYING in the table, but BIGINT in the new definition",
        ),
        (captured("id INT, a VARCHAR PRIMARY KEY"), "PRIMARY KEY cannot change"),
        (captured("id INT PRIMARY KEY, a VARCHAR").replace("public.t", "public.u"), "FROM … TABLE cannot change"),
        (
            captured("id INT PRIMARY KEY, a VARCHAR").replace(" FROM", " INCLUDE timestamp AS at FROM"),
            "INCLUDE cannot change",
        ),
    ],
    ids=["a type", "the key", "the table", "INCLUDE"],
)
def test_what_cannot_change_in_a_captured_table(wanted: str, refusal: str) -> None:
    assert change(captured("id INT PRIMARY KEY, a VARCHAR"), wanted).refusal == refusal
