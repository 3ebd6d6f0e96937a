"""Folder and catalog: which object the former name of a note means, and what a note without such an object does."""

from __future__ import annotations

from rw_sql.plan.deploy.changes import compare
from rw_sql.plan.deploy.folder import read_folder
from tests.plan.deploy.test_changes import ALL, CONNECTION, SOURCE, TOP, VIEW, bring, deployed, differ, script
from tests.plan.tables import tables_world


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
