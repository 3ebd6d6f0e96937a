"""Objects that are not in the folder, but without whose drop the folder's objects cannot change."""

from __future__ import annotations

import pytest

from rw_sql.cli.deploy.commands import _require_allowed
from rw_sql.errors import SqlError
from rw_sql.plan.deploy.plan_file import from_json, saved_plan, to_json
from tests.support.offline_warehouse import OfflineWarehouse

KAFKA = "connector = 'kafka', topic = 't', properties.bootstrap.server = '127.0.0.1:9092'"
TABLE = f"CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT) WITH ({KAFKA}) FORMAT UPSERT ENCODE JSON;\n"
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT id, a FROM t;\n"
READER = "CREATE MATERIALIZED VIEW w AS SELECT * FROM v;\n"
SINK = (
    "CREATE SINK k FROM {} WITH (connector = 'kafka', topic = 'o', properties.bootstrap.server = '127.0.0.1:9092', "
    "type = 'upsert', primary_key = 'id') FORMAT UPSERT ENCODE JSON;\n"
)
RENAMED = TABLE.replace("a INT", "a2 INT FROM a")
DEPENDS = "an object that it depends on is dropped"
SENT = "sinks cannot remove the rows that they have sent: k"


def of(text: str) -> OfflineWarehouse:
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": text})
    return warehouse


@pytest.mark.parametrize(
    ("before", "wanted", "expected"),
    [
        pytest.param(
            TABLE + VIEW + READER,
            TABLE + VIEW.replace("id, a", "id"),
            [("drop", "w", 'v gets another query: it would lose its column "a"'), ("rebuild", "v", "")],
            id="a reader that cannot follow a rebuild",
        ),
        pytest.param(
            TABLE + VIEW + SINK.format("v"),
            TABLE + VIEW.replace("id, a", "id"),
            [("drop", "k", DEPENDS), ("recreate", "v", SENT), ("recreate", "v", SENT)],
            id="a sink of a view with another query",
        ),
        pytest.param(
            TABLE + VIEW + READER + SINK.format("w"),
            TABLE + VIEW.replace("id, a", "id, a, b") + READER,
            [
                ("drop", "k", DEPENDS),
                ("recreate", "w", ""),
                ("recreate", "v", SENT),
                ("recreate", "v", SENT),
                ("recreate", "w", "an object that it depends on is created again"),
            ],
            id="a sink of a reader",
        ),
        pytest.param(
            TABLE + VIEW + READER,
            RENAMED + VIEW.replace("id, a", "id, a2"),
            [
                ("drop", "w", DEPENDS),
                ("recreate", "v", 'it may use column "a" of t, which is renamed'),
                ("alter", "t", ""),
                ("recreate", "v", 'it may use column "a" of t, which is renamed'),
            ],
            id="a reader of a view that uses a renamed column",
        ),
        pytest.param(
            TABLE.replace("TABLE t", "TABLE s").replace("id INT PRIMARY KEY", "id INT PRIMARY KEY")
            + VIEW.replace("FROM t", "FROM s"),
            f"CREATE SOURCE s (id INT, a INT) WITH ({KAFKA}) FORMAT PLAIN ENCODE JSON;\n"
            + VIEW.replace("FROM t", "FROM s"),
            [
                ("recreate", "v", ""),
                ("drop", "s", "its name is needed for source s"),
                ("create", "s", ""),
                ("recreate", "v", "an object that it depends on is created again"),
            ],
            id="a table whose name a source gets",
        ),
    ],
)
def test_an_object_that_is_not_created_again_is_shown_as_dropped(
    before: str, wanted: str, expected: list[tuple[str, str, str]]
) -> None:
    """A reviewer of the plan looks for drops."""
    warehouse, folder = of(before), {"a.sql": wanted}
    changes = warehouse.changes(folder)
    reasons = [(c.action, c.name, "" if c.action == "rebuild" else c.reason) for c in changes]
    assert reasons == expected
    plan = from_json(to_json(saved_plan(warehouse.snapshot, "w", changes)), "plan.json")
    kind, name = next((c.kind.replace("_", " "), c.name) for c in changes if c.action == "drop")
    for found in (changes, plan.changes):
        with pytest.raises(SqlError) as caught:
            _require_allowed(warehouse.snapshot, found, allow_drop=False)
        assert caught.value.code == "RW312"
        assert caught.value.message.startswith(
            f'{kind} "{name}" is not in the folder, and other objects cannot change to their new definitions unless it '
            "is dropped: "
        )
        assert "--allow-drop drops it, and does not create it again" in (caught.value.hint or "")
        assert _require_allowed(warehouse.snapshot, found, allow_drop=True) == list(found)
    warehouse.apply(folder)
    assert warehouse.changes(folder) == ()


def test_an_object_that_need_not_be_dropped_is_kept() -> None:
    warehouse = of(TABLE + VIEW + READER + SINK.format("w"))
    changes = warehouse.changes({"a.sql": TABLE.replace("b INT", "b INT, c INT") + VIEW})
    assert [(change.action, change.name) for change in changes] == [("alter", "t"), ("drop", "k"), ("drop", "w")]
    chosen = _require_allowed(warehouse.snapshot, changes, allow_drop=False)
    assert [change.name for change in chosen] == ["t"]


def test_an_object_of_the_folder_that_reads_a_dropped_object_is_named() -> None:
    """Also if the object would be dropped only because of another change."""
    top = "CREATE MATERIALIZED VIEW top AS SELECT id FROM w;\n"
    warehouse = of(TABLE + VIEW + READER + top)
    wanted = TABLE.replace("a INT", "a VARCHAR") + VIEW + top
    with pytest.raises(SqlError, match=r'"top" at a.sql:3 reads materialized view "w", which is not in the folder'):
        warehouse.changes({"a.sql": wanted})


def test_the_note_about_a_former_name_that_no_object_has_counts_these_drops() -> None:
    warehouse = of(TABLE + VIEW + READER)
    other = "-- rw: renamed from ww\nCREATE MATERIALIZED VIEW x AS SELECT id FROM v;\n"
    changes = warehouse.changes({"a.sql": TABLE + VIEW.replace("id, a", "id") + other})
    assert [(change.action, change.name, change.reason) for change in changes][-1] == (
        "create",
        "x",
        "nothing is renamed: no materialized view is called ww",
    )
