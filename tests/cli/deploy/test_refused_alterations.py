"""The changes of a folder for edits that no single ALTER statement makes: the plan makes them in steps, or creates the
object again. No statement of the plan is refused, and afterwards no difference is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.offline_warehouse import OfflineWarehouse

if TYPE_CHECKING:
    from collections.abc import Callable

BROKER = "properties.bootstrap.server = '127.0.0.1:9092'"
KAFKA = f"connector = 'kafka', topic = 't', {BROKER}"
SOURCE = f"CREATE SOURCE s (id INT, n INT) WITH ({KAFKA}) FORMAT PLAIN ENCODE JSON;\n"
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT id FROM s;\n"


def table(columns: str, form: str = "UPSERT ENCODE JSON") -> str:
    return f"CREATE TABLE t ({columns}) WITH ({KAFKA}) FORMAT {form};\n"


def refreshed(columns: str) -> str:
    return f"CREATE TABLE t ({columns}) WITH (connector = 'delta', delta.path = '/x', refresh_mode = 'FULL_RELOAD');\n"


def of(text: str, *alterations: str) -> OfflineWarehouse:
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": text})
    warehouse.run(*alterations)
    return warehouse


def require_reached(before: str, wanted: str, *alterations: str) -> None:
    """Applies a folder, also after an interruption after any statement."""
    folder = {"a.sql": wanted}
    count = sum(len(change.statements) for change in of(before, *alterations).changes(folder))
    for until in range(1, count + 1):
        warehouse = of(before, *alterations)
        warehouse.apply(folder, statements=until)
        warehouse.apply(folder)
        assert warehouse.changes(folder) == ()


CSV = "PLAIN ENCODE CSV (without_header = 'true', delimiter = ',')"
AGAIN = {
    "a dropped column comes back": (
        table("id INT PRIMARY KEY, n INT"),
        table("id INT PRIMARY KEY, n INT"),
        ("ALTER TABLE t DROP COLUMN n",),
        'table "t" had a column for field "n", which the log still contains',
    ),
    "a column gets another name and type": (
        table("id INT PRIMARY KEY, y VARCHAR"),
        table("id INT PRIMARY KEY, y2 INT FROM y"),
        (),
        'table "t" had a column for field "y", which the log still contains',
    ),
    "the case of a column's name changes": (
        table('id INT PRIMARY KEY, "Y" INT'),
        table("id INT PRIMARY KEY, y INT"),
        (),
        'table "t" had a column for field "y", which the log still contains',
    ),
    "a table that is loaded as a whole": (
        refreshed("id INT PRIMARY KEY"),
        refreshed("id INT PRIMARY KEY, n INT"),
        (),
        'table "t" is loaded as a whole: ADD COLUMN is not supported yet',
    ),
    "a column of CSV": (
        table("id INT PRIMARY KEY, x INT, y INT", CSV),
        table("id INT PRIMARY KEY, x INT", CSV),
        (),
        'column "y" cannot be dropped: the fields of CSV are identified by position',
    ),
    "a new column with a default": (
        table("id INT PRIMARY KEY"),
        table("id INT PRIMARY KEY, n INT DEFAULT 5"),
        (),
        "ADD COLUMN with a DEFAULT is not supported",
    ),
}


@pytest.mark.parametrize(("before", "wanted", "alterations", "reason"), AGAIN.values(), ids=AGAIN)
def test_a_table_whose_columns_cannot_change_in_place_is_created_again(
    before: str, wanted: str, alterations: tuple[str, ...], reason: str
) -> None:
    view = "CREATE MATERIALIZED VIEW over AS SELECT id FROM t;\n"
    changes = of(before + view, *alterations).changes({"a.sql": wanted + view})
    assert [(change.action, change.name) for change in changes] == [
        ("recreate", "over"),
        ("recreate", "t"),
        ("recreate", "t"),
        ("recreate", "over"),
    ]
    assert {change.reason for change in changes if change.name == "t"} == {reason}
    require_reached(before + view, wanted + view, *alterations)


def test_a_table_that_could_not_be_created_either_keeps_its_error() -> None:
    warehouse = of(table("id INT PRIMARY KEY"))
    (change,) = warehouse.changes({"a.sql": table("id INT PRIMARY KEY, _rw_n INT")})
    assert (change.action, change.texts) == ("alter", ("ALTER TABLE t ADD COLUMN _rw_n INT",))


def test_a_view_that_uses_the_new_name_of_a_column_is_created_again() -> None:
    view = "CREATE MATERIALIZED VIEW v AS SELECT id AS label FROM t;\n"
    before, wanted = table("id INT PRIMARY KEY, name INT"), table("id INT PRIMARY KEY, label INT FROM name")
    changes = of(before + view).changes({"a.sql": wanted + view})
    assert [(change.action, change.name, change.reason) for change in changes] == [
        ("recreate", "v", 'it may use the name "label", which a column of t gets'),
        ("alter", "t", ""),
        ("recreate", "v", 'it may use the name "label", which a column of t gets'),
    ]
    require_reached(before + view, wanted + view)


def test_a_computed_column_is_dropped_before_the_column_from_which_it_is_computed() -> None:
    before, wanted = table("id INT PRIMARY KEY, x INT, d INT AS x + 1"), table("id INT PRIMARY KEY")
    (change,) = of(before).changes({"a.sql": wanted})
    assert change.texts == ("ALTER TABLE t DROP COLUMN d", "ALTER TABLE t DROP COLUMN x")
    require_reached(before, wanted)


def test_a_column_waits_for_the_rebuild_until_which_a_column_that_is_computed_from_it_is_used() -> None:
    before = table("id INT PRIMARY KEY, x INT, d INT AS x + 1") + "CREATE MATERIALIZED VIEW v AS SELECT id, d FROM t;\n"
    wanted = table("id INT PRIMARY KEY") + "CREATE MATERIALIZED VIEW v AS SELECT id FROM t;\n"
    assert [text for change in of(before).changes({"a.sql": wanted}) for text in change.texts] == [
        "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id FROM t",
        "WAIT MATERIALIZED VIEW v",
        "ALTER TABLE t DROP COLUMN d",
        "ALTER TABLE t DROP COLUMN x",
    ]
    require_reached(before, wanted)


PG = (
    "CREATE SOURCE pg WITH (connector = 'postgres-cdc', hostname = 'h', username = 'u', database.name = 'd', "
    "slot.name = 'rw', publication.name = 'rw');\n"
)
TOTAL = "CREATE MATERIALIZED VIEW total AS SELECT {} FROM t;\n"


def captured(columns: str) -> str:
    return PG + f"CREATE TABLE t ({columns}) FROM pg TABLE 'public.t';\n"


@pytest.mark.parametrize("of_columns", [table, captured], ids=["records", "captured"])
@pytest.mark.parametrize(
    ("columns", "query"),
    [
        ("id INT PRIMARY KEY, total INT", "id, total AS amount"),
        ("id INT PRIMARY KEY", "id, 1 AS amount"),
        ("id INT PRIMARY KEY, total INT", "*"),
        ("id INT PRIMARY KEY, amount2 BIGINT FROM amount", "id, amount2"),
    ],
    ids=["another column", "a value", "all columns", "another type"],
)
def test_a_view_whose_new_query_still_has_the_name_of_a_dropped_column_is_created_again(
    of_columns: Callable[[str], str], columns: str, query: str
) -> None:
    before = of_columns("id INT PRIMARY KEY, amount INT") + TOTAL.format("id, amount")
    wanted = of_columns(columns) + TOTAL.format(query)
    require_reached(before, wanted)
    changes = of(before).changes({"a.sql": wanted})
    assert {change.action for change in changes if change.name == "total"} == {"recreate"}


def test_a_captured_column_is_dropped_before_a_column_of_another_type_reads_its_field() -> None:
    before = captured("id INT PRIMARY KEY, amount INT") + TOTAL.format("id, amount")
    wanted = captured("id INT PRIMARY KEY, amount2 BIGINT FROM amount") + TOTAL.format("id, amount2")
    assert [(change.action, change.name) for change in of(before).changes({"a.sql": wanted})] == [
        ("recreate", "total"),
        ("alter", "t"),
        ("recreate", "total"),
    ]


def test_a_computed_column_whose_name_stays_in_a_view_does_not_recreate_the_table() -> None:
    before = table("id INT PRIMARY KEY, x INT, d INT AS x + 1") + TOTAL.format("id, d")
    wanted = table("id INT PRIMARY KEY") + TOTAL.format("id, 1 AS d")
    assert [(change.action, change.name) for change in of(before).changes({"a.sql": wanted})] == [
        ("recreate", "total"),
        ("alter", "t"),
        ("recreate", "total"),
    ]
    require_reached(before, wanted)


def test_a_rebuilt_view_is_created_again_if_a_new_view_has_the_name_of_the_dropped_column() -> None:
    before = table("id INT PRIMARY KEY, amount INT") + TOTAL.format("id, amount")
    new = "CREATE MATERIALIZED VIEW other AS SELECT id, total AS amount FROM t;\n"
    wanted = table("id INT PRIMARY KEY, total INT") + TOTAL.format("id, total") + new
    require_reached(before, wanted)


IN_GROUP = VIEW.replace(" AS", " WITH (resource_group = 'g') AS")


@pytest.mark.parametrize(
    ("before", "wanted", "first"),
    [
        (VIEW, IN_GROUP, "ALTER MATERIALIZED VIEW v SET RESOURCE_GROUP = 'g'"),
        (IN_GROUP, VIEW, "ALTER MATERIALIZED VIEW v SET RESOURCE_GROUP = DEFAULT"),
        (IN_GROUP, IN_GROUP.replace("'g'", "'default'"), "ALTER MATERIALIZED VIEW v SET RESOURCE_GROUP = DEFAULT"),
        (IN_GROUP, IN_GROUP.replace("'g'", "'h'"), "ALTER MATERIALIZED VIEW v SET RESOURCE_GROUP = 'h'"),
    ],
    ids=["set", "omitted", "default", "another"],
)
def test_a_view_moves_to_another_resource_group_before_it_gets_another_query(
    before: str, wanted: str, first: str
) -> None:
    wanted = SOURCE + wanted.replace("SELECT id", "SELECT n")
    (change,) = of(SOURCE + before).changes({"a.sql": wanted})
    assert change.action == "rebuild"
    assert change.texts[0] == first
    assert change.texts[1].startswith("CREATE OR REPLACE MATERIALIZED VIEW v")
    require_reached(SOURCE + before, wanted)


CONNECTION = "CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '127.0.0.1:9093');\n"


@pytest.mark.parametrize(
    ("kind", "before"),
    [("SOURCE s", SOURCE), ("TABLE t", table("id INT PRIMARY KEY"))],
    ids=["a source", "a table"],
)
def test_an_object_gets_the_values_of_a_connection_before_the_connection(kind: str, before: str) -> None:
    wanted = CONNECTION + before.replace(BROKER, "connection = c").replace("topic = 't'", "topic = 't2'")
    changes = of(before).changes({"a.sql": wanted})
    assert [(change.action, change.kind) for change in changes] == [
        ("create", "connection"),
        ("unsafe", kind.split()[0].lower()),
    ]
    assert changes[1].texts == (
        f"ALTER {kind} UNSAFE SET (properties.bootstrap.server = '127.0.0.1:9093', topic = 't2')",
        f"ALTER {kind} SET CONNECTION c",
    )
    require_reached(before, wanted)


def test_a_move_to_the_server_of_a_connection_also_sets_what_only_the_connection_has() -> None:
    only = (
        "properties.security.protocol = 'SASL_SSL', properties.sasl.mechanism = 'PLAIN', "
        "properties.sasl.username = 'u', properties.sasl.password = SECRET p"
    )
    secret = "CREATE SECRET p WITH (backend = 'meta') AS 'x'"
    wanted = CONNECTION.replace("9093'", f"9093', {only}") + SOURCE.replace(BROKER, "connection = c")
    before = OfflineWarehouse({})
    before.run(secret, SOURCE)
    assert [" ".join(text.split()) for text in before.changes({"a.sql": wanted})[1].texts] == [
        f"ALTER SOURCE s UNSAFE SET ( properties.bootstrap.server = '127.0.0.1:9093', {only} )",
        "ALTER SOURCE s SET CONNECTION c",
    ]
    before.apply({"a.sql": wanted})
    assert before.changes({"a.sql": wanted}) == ()


def test_a_safe_property_is_set_before_the_connection_that_provides_it() -> None:
    before = SOURCE.replace(BROKER, f"{BROKER}, properties.client.id = 'x'")
    connection = CONNECTION.replace("9093'", "9092', properties.client.id = 'y'")
    wanted = connection + SOURCE.replace(BROKER, "connection = c")
    assert of(before).changes({"a.sql": wanted})[1].texts == (
        "ALTER SOURCE s CONNECTOR WITH (properties.client.id = 'y')",
        "ALTER SOURCE s SET CONNECTION c",
    )
    require_reached(before, wanted)


def test_a_sink_whose_target_changes_with_its_connection_is_created_again() -> None:
    sink = f"CREATE SINK k FROM s WITH (connector = 'kafka', topic = 'o', {BROKER}) FORMAT PLAIN ENCODE JSON;\n"
    wanted = CONNECTION + SOURCE + sink.replace(BROKER, "connection = c")
    changes = of(SOURCE + sink).changes({"a.sql": wanted})
    assert [(change.action, change.name) for change in changes] == [
        ("recreate", "k"),
        ("create", "c"),
        ("recreate", "k"),
    ]
    assert changes[0].reason == "properties.bootstrap.server of a sink cannot change"
    require_reached(SOURCE + sink, wanted)
