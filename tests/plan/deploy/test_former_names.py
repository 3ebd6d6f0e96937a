"""Folder and catalog: which object the former name of a note means, and what a note without such an object does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.plan.deploy.changes import compare
from rw_sql.plan.deploy.folder import read_folder
from tests.plan.deploy.test_changes import ALL, CONNECTION, SOURCE, TOP, VIEW, bring, deployed, differ, script
from tests.plan.tables import tables_world
from tests.support.offline_warehouse import OfflineWarehouse

if TYPE_CHECKING:
    from tests.plan.canned import CannedWorld


def test_a_former_name_without_a_schema_is_in_the_schema_of_the_object() -> None:
    world = tables_world()
    texts = ("CREATE SCHEMA mart", CONNECTION, SOURCE, VIEW.replace("VIEW v", "VIEW mart.v"))
    bring(world, *texts)
    new = "-- rw: renamed from v\n" + VIEW.replace("VIEW v", "VIEW mart.w")
    assert differ(world, *texts[:3], new) == [
        ("rename", "mart.w", ("ALTER MATERIALIZED VIEW mart.v RENAME TO mart.w",))
    ]
    bring(world, *texts[:3], new)
    assert differ(world, *texts[:3], new) == []
    # In the schema public, an object with the name has precedence.
    bring(world, *texts, VIEW)
    assert [(action, name) for action, name, _ in differ(world, *texts[:3], new)] == [
        ("rename", "mart.w"),
        ("drop", "mart.v"),
    ]


def test_a_former_name_that_no_object_has_is_reported_where_an_object_is_dropped() -> None:
    world = deployed()
    texts = [text for text in ALL if text not in (VIEW, TOP)]
    wrong = "-- rw: renamed from vv\n" + VIEW.replace("VIEW v", "VIEW w")

    def reasons(*texts: str) -> dict[tuple[str, str], str]:
        changes = compare(world.snapshot, read_folder([("a.sql", script(*texts))], {}))
        return {(change.action, change.name): change.reason for change in changes}

    assert reasons(*texts, wrong) == {
        ("create", "w"): "nothing is renamed: no materialized view is called vv",
        ("drop", "top"): "",
        ("drop", "v"): "",
    }
    assert reasons(*ALL, wrong) == {("create", "w"): ""}


def test_comments_of_an_earlier_deployment_rename_nothing_when_an_object_is_missing() -> None:
    first = (
        "CREATE MATERIALIZED VIEW a AS SELECT id FROM s",
        "CREATE MATERIALIZED VIEW b AS SELECT id, 1 AS one FROM s",
    )
    queries = {"c": "SELECT id, 1 AS one FROM s", "b": "SELECT id FROM s", "a": "SELECT id, 2 AS two FROM s"}
    notes = {"c": "-- rw: renamed from b\n", "b": "-- rw: renamed from a\n", "a": ""}
    texts = [f"{notes[name]}CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in queries.items()]
    world = tables_world()
    bring(world, SOURCE, CONNECTION, *first)
    bring(world, SOURCE, CONNECTION, *texts)
    before = {view.name: view.id for view in world.snapshot.all("materialized_view")}
    world.run("DROP MATERIALIZED VIEW c")
    changed = [texts[0].replace("1 AS one", "7 AS seven"), *texts[1:]]
    assert [found[:2] for found in differ(world, SOURCE, CONNECTION, *changed)] == [("create", "c")]
    bring(world, SOURCE, CONNECTION, *changed)
    then = {view.name: view.id for view in world.snapshot.all("materialized_view")}
    assert {name: then[name] for name in "ab"} == {name: before[name] for name in "ab"}


MOVED = {
    "a view": (
        ("CREATE SCHEMA mart", "-- rw: renamed from v\n" + VIEW.replace("VIEW v", "VIEW mart.v")),
        (CONNECTION, SOURCE, TOP.replace("FROM v", "FROM mart.v")),
    ),
    "a source and its readers": (
        (
            "CREATE SCHEMA raw",
            "CREATE SCHEMA mart",
            "-- rw: renamed from s\n" + SOURCE.replace("SOURCE s", "SOURCE raw.events"),
            "-- rw: renamed from v\n" + VIEW.replace("VIEW v", "VIEW mart.v").replace("FROM s", "FROM raw.events"),
            "-- rw: renamed from top\n" + TOP.replace("VIEW top", "VIEW mart.top").replace("FROM v", "FROM mart.v"),
        ),
        (CONNECTION,),
    ),
}


@pytest.mark.parametrize(("moved", "kept"), MOVED.values(), ids=MOVED)
def test_objects_move_into_schemas_that_the_folder_creates(moved: tuple[str, ...], kept: tuple[str, ...]) -> None:
    texts = (*moved, *kept)
    statements = len(differ(deployed_views(), *texts))
    for until in range(statements + 1):
        world = deployed_views()
        ids = {record.id for kind in ("source", "materialized_view") for record in world.snapshot.all(kind)}
        found = differ(world, *texts)
        schemas = sum("CREATE SCHEMA" in text for text in moved)
        assert [action for action, *_ in found] == ["create"] * schemas + ["rename"] * (len(moved) - schemas)
        bring(world, *texts, until=until)
        bring(world, *texts)
        assert differ(world, *texts) == []
        assert {record.id for kind in ("source", "materialized_view") for record in world.snapshot.all(kind)} == ids


def test_objects_move_from_a_schema_that_is_dropped_into_a_new_schema() -> None:
    world = tables_world()
    view = VIEW.replace("VIEW v", "VIEW old.v")
    bring(world, CONNECTION, SOURCE, "CREATE SCHEMA old", view)
    texts = (CONNECTION, SOURCE, "CREATE SCHEMA new", "-- rw: renamed from old.v\n" + view.replace("old", "new"))
    assert [statements for *_, statements in differ(world, *texts)] == [
        ("CREATE SCHEMA new",),
        ("ALTER MATERIALIZED VIEW old.v SET SCHEMA new",),
        ("DROP SCHEMA old",),
    ]
    bring(world, *texts)
    assert differ(world, *texts) == []


def deployed_views() -> CannedWorld:
    world = tables_world()
    bring(world, CONNECTION, SOURCE, VIEW, TOP)
    return world


SCHEMAS = ("CREATE SCHEMA raw", "CREATE SCHEMA mart")


def in_schemas(text: str, **names: str) -> str:
    """A statement with other names: each is written as in the folder, ``s`` and ``v`` are in the schema raw."""
    for old, new in {"s": "raw.s", "v": "raw.v", **names}.items():
        text = re.sub(rf"\b(SOURCE|VIEW|FROM) {old}\b", rf"\1 {new}", text)
    return text


@pytest.mark.parametrize("taken", [(), ("mart.s",), ("mart.v",), ("raw.src", "raw.w"), ("mart.s", "mart.v")])
@pytest.mark.parametrize("is_changed", [False, True])
def test_a_rename_to_another_schema_and_name_continues_after_an_interruption(
    taken: tuple[str, ...], *, is_changed: bool
) -> None:
    """A rename takes two statements. Whatever has one of the two names between them stays as it is."""
    names = {"s": "mart.src", "v": "mart.w"}
    others = [VIEW.replace("VIEW v", f"VIEW {name}").replace("SELECT id", "SELECT id, 1 AS one") for name in taken]
    others = [text.replace("FROM s", "FROM raw.s") for text in others]
    before = (*SCHEMAS, CONNECTION, in_schemas(SOURCE), in_schemas(VIEW), in_schemas(TOP), *others)
    source = in_schemas(SOURCE, **names)
    if is_changed:
        source = source.replace("topic", "source_rate_limit = 5, topic")
    wanted = (
        *SCHEMAS,
        CONNECTION,
        "-- rw: renamed from raw.v\n" + in_schemas(VIEW, **names),
        "-- rw: renamed from raw.s\n" + source,
        in_schemas(TOP, **names),
        *(text.replace("FROM raw.s", "FROM mart.src") for text in others),
    )
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": script(*before)})
    deployed = warehouse.snapshot
    ids = {record.id for kind in ("source", "materialized_view") for record in deployed.all(kind)}
    folder = {"a.sql": script(*wanted)}
    changes = warehouse.changes(folder)
    assert [len(change.statements) for change in changes if change.action == "rename"] == [2, 2]
    assert {change.action for change in changes} <= {"rename", "alter"}
    for until in range(sum(len(change.statements) for change in changes) + 1):
        warehouse = OfflineWarehouse({}, deployed)
        warehouse.apply(folder, statements=until)
        assert {change.action for change in warehouse.changes(folder)} <= {"rename", "alter"}
        warehouse.apply(folder)
        assert warehouse.changes(folder) == ()
        found = warehouse.snapshot
        assert {record.id for kind in ("source", "materialized_view") for record in found.all(kind)} == ids


def test_a_rename_that_has_no_free_name_on_its_way_is_refused() -> None:
    taken = [VIEW.replace("VIEW v", f"VIEW {name}").replace("FROM s", "FROM raw.s") for name in ("mart.v", "raw.w")]
    before = (*SCHEMAS, CONNECTION, in_schemas(SOURCE), in_schemas(VIEW), *taken)
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": script(*before)})
    wanted = [text for text in before if "VIEW raw.v" not in text]
    wanted.append("-- rw: renamed from raw.v\n" + in_schemas(VIEW, v="mart.w"))
    with pytest.raises(SqlError, match=r"because mart\.v and raw\.w exist") as caught:
        warehouse.changes({"a.sql": script(*wanted)})
    assert "another name, such as mart.w_2" in (caught.value.hint or "")


def test_an_object_with_another_definition_is_not_taken_for_an_interrupted_rename() -> None:
    """The comment of an earlier deployment stays in the files, also for a warehouse that never had the old name."""
    others = (
        in_schemas(SOURCE, s="mart.s").replace("'old'", "'new'"),
        in_schemas(VIEW, s="mart.s", v="raw.w").replace("SELECT id", "SELECT id, 1 AS one"),
    )
    warehouse = OfflineWarehouse({})
    connection = CONNECTION.replace("CONNECTION c", "CONNECTION mart.c")
    warehouse.apply({"a.sql": script(*SCHEMAS, CONNECTION, connection, *others)})
    wanted = (
        "-- rw: renamed from raw.c\n" + connection.replace("mart.c", "mart.d"),
        "-- rw: renamed from raw.s\n" + in_schemas(SOURCE, s="mart.src"),
        "-- rw: renamed from raw.v\n" + in_schemas(VIEW, s="mart.src", v="mart.w"),
    )
    changes = warehouse.changes({"a.sql": script(*SCHEMAS, CONNECTION, *wanted)})
    assert [(change.action, change.name) for change in changes] == [
        ("create", "mart.d"),
        ("create", "mart.src"),
        ("create", "mart.w"),
        ("drop", "raw.w"),
        ("drop", "mart.c"),
        ("drop", "mart.s"),
    ]
