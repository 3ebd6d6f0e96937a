"""Folder and catalog: a deployment continues the rebuilds of an earlier deployment, and only the changes that need a
rebuilt view wait for its rebuild."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore.facts import JobStatus
from rw_sql.model.job_ids import rebuild_job
from rw_sql.plan.statements.view.rebuild import rebuild_groups, swap_operation
from tests.cli.deploy.test_optional_drops import ADD, SOURCE, table
from tests.plan.deploy.test_changes import ALL, VIEW, bring, deployed, differ, script
from tests.plan.tables import sink
from tests.support.offline_warehouse import OfflineWarehouse

if TYPE_CHECKING:
    from tests.plan.canned import CannedWorld

MORE = VIEW.replace("SELECT id", "SELECT id, id AS more")
KAFKA = "connector = 'kafka', topic = 't', properties.bootstrap.server = '127.0.0.1:9092'"
BASE = f"CREATE SOURCE s (id INT, n INT) WITH ({KAFKA}) FORMAT PLAIN ENCODE JSON"
BEGIN, WAIT = "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id, id AS more FROM s", "WAIT MATERIALIZED VIEW v"
RUNNING = "a rebuild with this definition is already running"


def changed(*pairs: tuple[str, str]) -> list[str]:
    """The folder with other texts in place of some statements."""
    texts = dict(pairs)
    return [texts.get(text, text) for text in ALL]


def interrupted(*texts: str) -> CannedWorld:
    """A catalog in which a deployment of the folder was interrupted while it waited for a rebuild."""
    world = deployed()
    bring(world, *texts)
    assert world.snapshot.all("rebuild")
    return world


def stall(world: CannedWorld, *views: str, reason: str = "EXPIRED old:0") -> None:
    """The jobs of these rebuilds are STALLED."""
    for rebuild in world.snapshot.all("rebuild"):
        if rebuild.name in views:
            job = rebuild_job(rebuild)
            world.jobs[job] = JobStatus(job=job, object_id=rebuild.view_id, state="STALLED", reason=reason)


def generations(world: CannedWorld) -> dict[str, int]:
    return {rebuild.name: rebuild.generation for rebuild in world.snapshot.all("rebuild")}


def swap(world: CannedWorld) -> None:
    for group in rebuild_groups(world.snapshot):
        world.commit(swap_operation(world.snapshot, group, "the owner"))


@pytest.mark.parametrize("stalled", ["v", "top"])
def test_a_stalled_rebuild_begins_again_if_the_folder_is_applied_again(stalled: str) -> None:
    """Otherwise, every later deployment would wait for the rebuild in vain."""
    texts = changed((VIEW, MORE))
    world = interrupted(*texts)
    stall(world, stalled)
    assert differ(world, *texts) == [
        ("rebuild", "v", (WAIT, BEGIN, WAIT)),
        ("rebuild", "top", ("WAIT MATERIALIZED VIEW top",)),
    ]
    bring(world, *texts)
    assert generations(world) == {"v": 3, "top": 3}
    swap(world)
    assert differ(world, *texts) == []


def test_a_healthy_rebuild_does_not_begin_again() -> None:
    texts = changed((VIEW, MORE))
    world = interrupted(*texts)
    epoch = world.snapshot.epoch
    bring(world, *texts)
    assert (generations(world), world.snapshot.epoch) == ({"v": 2, "top": 2}, epoch)


@pytest.mark.parametrize(
    "reason",
    ["UNREACHABLE 127.0.0.1:9092", "FLAPPING: restarted 4 times in 2 min", "REGISTRY does not answer: timed out"],
)
def test_a_rebuild_that_is_only_interrupted_keeps_its_progress(reason: str) -> None:
    """Otherwise, each deployment during an outage of the broker would discard the hours that a rebuild has read."""
    texts = changed((VIEW, MORE))
    world = interrupted(*texts)
    stall(world, "v", reason=reason)
    bring(world, *texts)
    assert generations(world) == {"v": 2, "top": 2}


@pytest.mark.parametrize("option", ["backfill_rate_limit = 9", "resource_group = 'g'"])
@pytest.mark.parametrize("is_stalled", [False, True])
def test_a_deployment_waits_for_a_rebuild_whose_options_it_changes(option: str, *, is_stalled: bool) -> None:
    world = interrupted(*changed((VIEW, MORE)))
    wanted = MORE.replace(" AS SELECT", f" WITH ({option}) AS SELECT")
    texts = [*changed((VIEW, wanted)), "CREATE MATERIALIZED VIEW reader AS SELECT more FROM v"]
    if is_stalled:
        stall(world, "v")
    key, value = option.split(" = ")
    assert differ(world, *texts)[0] == (
        "rebuild",
        "v",
        (
            f"ALTER MATERIALIZED VIEW v SET {key.upper()} = {value}",
            WAIT,
            BEGIN.replace(" AS SELECT", f" WITH ({option}) AS SELECT"),
            WAIT,
        ),
    )
    bring(world, *texts, until=1)
    assert generations(world)["v"] == (3 if is_stalled else 2)
    # The reader is created afterwards.
    assert [name for action, name, _ in differ(world, *texts) if action != "create"] == ["v", "top"]
    swap(world)
    assert [name for _, name, _ in differ(world, *texts)] == ["reader"]


def test_the_rate_of_a_view_is_set_before_the_rebuild_that_carries_it_over_is_complete() -> None:
    first = changed((VIEW, MORE))
    top = next(text for text in ALL if " top " in text)
    texts = changed((VIEW, MORE), (top, top.replace(" AS", " WITH (backfill_rate_limit = 9) AS")))
    world = interrupted(*first)
    assert differ(world, *texts) == [
        ("rebuild", "top", ("ALTER MATERIALIZED VIEW top SET BACKFILL_RATE_LIMIT = 9",)),
        ("rebuild", "v", (WAIT, BEGIN, WAIT)),
        ("rebuild", "top", ("WAIT MATERIALIZED VIEW top",)),
    ]
    stall(world, "top")
    bring(world, *texts)
    assert generations(world) == {"v": 3, "top": 3}
    swap(world)
    assert differ(world, *texts) == []


@pytest.mark.parametrize(
    ("stalled", "begun"),
    [("one", {"one", "joined"}), ("two", {"two", "joined"}), ("joined", {"one", "joined"})],
)
def test_stalled_rebuilds_that_end_together_begin_again_before_one_must_be_complete(
    stalled: str, begun: set[str]
) -> None:
    """The tables of both views are replaced together, because ``joined`` reads both views."""
    views = [f"CREATE MATERIALIZED VIEW {name} AS SELECT id FROM s" for name in ("one", "two")]
    joined = "CREATE MATERIALIZED VIEW joined AS SELECT id FROM one JOIN two USING (id)"
    world = deployed()
    bring(world, *ALL, *views, joined)
    texts = [*ALL, *(text.replace("SELECT id", "SELECT id, id AS more") for text in views), joined]
    world.run(*(text.replace("CREATE", "CREATE OR REPLACE") for text in texts[-3:-1]))
    assert [
        (name, [text.split(" AS ")[0] for text in statements]) for _, name, statements in differ(world, *texts)
    ] == [
        ("one", ["WAIT MATERIALIZED VIEW one", "CREATE OR REPLACE MATERIALIZED VIEW one"]),
        ("two", ["WAIT MATERIALIZED VIEW two", "CREATE OR REPLACE MATERIALIZED VIEW two"]),
        ("one", ["WAIT MATERIALIZED VIEW one"]),
        ("two", ["WAIT MATERIALIZED VIEW two"]),
        ("joined", ["WAIT MATERIALIZED VIEW joined"]),
    ]
    before = generations(world)
    stall(world, stalled)
    bring(world, *texts, until=2)
    assert {name for name, generation in generations(world).items() if generation > before[name]} == begun


def test_a_running_rebuild_ends_before_another_rebuild_begins() -> None:
    other = "CREATE MATERIALIZED VIEW a AS SELECT id FROM t"
    world = deployed()
    bring(world, other, *ALL)
    texts = changed((VIEW, MORE))
    bring(world, other, *texts)
    stall(world, "v")
    wider = other.replace("SELECT id", "SELECT id, name")
    found = differ(world, wider, *texts)
    assert [(name, [text.split(" AS ")[0].split()[0] for text in statements]) for _, name, statements in found] == [
        ("v", ["WAIT", "CREATE", "WAIT"]),
        ("a", ["CREATE", "WAIT"]),
        ("top", ["WAIT"]),
    ]
    bring(world, wider, *texts)
    assert generations(world) == {"a": 2, "v": 3, "top": 3}


def test_a_rebuild_whose_input_gets_another_query_begins_again_with_its_new_query() -> None:
    """The rebuild of the input carries over the query that the reader will have."""
    inner, outer = "CREATE MATERIALIZED VIEW v AS SELECT id, n FROM s", "CREATE MATERIALIZED VIEW w AS SELECT id FROM v"
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": script(BASE, inner, outer)})
    outer = outer.replace("SELECT id", "SELECT id, n")
    warehouse.apply({"a.sql": script(BASE, inner, outer)}, statements=1)
    folder = {"a.sql": script(BASE, inner.replace("id, n", "id, n, n + 1 AS next"), outer)}
    warehouse.apply(folder)
    assert warehouse.changes(folder) == ()


def test_a_healthy_rebuild_does_not_begin_again_for_a_column_that_the_folder_lacks() -> None:
    """``auto.schema.change`` has added the column, and the query of the view selects all columns."""
    warehouse = OfflineWarehouse({})
    star = "CREATE MATERIALIZED VIEW star AS SELECT {} FROM t;\n"
    before = SOURCE + table("id INT PRIMARY KEY, a INT")
    warehouse.apply({"a.sql": before + star.format("id")})
    folder = {"a.sql": before + star.format("*")}
    warehouse.apply(folder, statements=1)
    (rebuild,) = warehouse.snapshot.all("rebuild")
    warehouse.run(ADD)
    (change,) = (found for found in warehouse.changes(folder) if found.name == "star")
    assert (change.texts, change.reason) == (("WAIT MATERIALIZED VIEW star",), RUNNING)
    assert warehouse.snapshot.all("rebuild") == (rebuild,)


OTHER = BASE.replace("SOURCE s", "SOURCE x")
UNRELATED = (
    OTHER,
    "CREATE MATERIALIZED VIEW of_x AS SELECT id FROM x",
    sink("PLAIN", "of_x").replace("SINK k", "SINK feed"),
)
BIG = "CREATE MATERIALIZED VIEW a_big AS SELECT id FROM s"
READER = "CREATE MATERIALIZED VIEW reader AS SELECT id FROM a_big"


def test_only_the_readers_of_a_rebuilt_view_wait_for_its_rebuild() -> None:
    """Otherwise, recreated objects would be missing while an unrelated view is rebuilt, or for ever if that rebuild is
    stalled."""
    before = script(BASE, BIG, READER, *UNRELATED)
    folder = {
        "a.sql": script(
            BASE,
            BIG.replace("SELECT id", "SELECT id, n"),
            READER,
            "CREATE MATERIALIZED VIEW indirect AS SELECT id FROM reader",
            "CREATE MATERIALIZED VIEW new AS SELECT id FROM s",
            *(text.replace("n INT", "n BIGINT") for text in UNRELATED),
        )
    }

    def deployed() -> OfflineWarehouse:
        warehouse = OfflineWarehouse({})
        warehouse.apply({"a.sql": before})
        return warehouse

    changes = deployed().changes(folder)
    assert [(change.action, change.name) for change in changes] == [
        ("recreate", "feed"),
        ("recreate", "of_x"),
        ("recreate", "x"),
        ("recreate", "x"),
        ("create", "new"),
        ("recreate", "of_x"),
        ("recreate", "feed"),
        ("rebuild", "a_big"),
        ("create", "indirect"),
    ]
    for until in range(sum(len(change.statements) for change in changes)):
        warehouse = deployed()
        warehouse.apply(folder, statements=until)
        warehouse.apply(folder)
        assert warehouse.changes(folder) == ()


def test_a_column_that_a_rebuilt_view_uses_is_dropped_last() -> None:
    table = "CREATE TABLE {} (id INT PRIMARY KEY{}) WITH (%s) FORMAT UPSERT ENCODE JSON" % KAFKA  # noqa: UP031
    view = "CREATE MATERIALIZED VIEW v AS SELECT id{} FROM t"
    new = "CREATE MATERIALIZED VIEW w AS SELECT id FROM u"
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": script(table.format("t", ", n INT"), table.format("u", ", m INT"), view.format(", n"))})
    folder = {"a.sql": script(table.format("t", ""), table.format("u", ""), view.format(""), new)}
    assert [(change.action, change.name) for change in warehouse.changes(folder)] == [
        ("alter", "u"),
        ("create", "w"),
        ("rebuild", "v"),
        ("alter", "t"),
    ]
    warehouse.apply(folder)
    assert warehouse.changes(folder) == ()


@pytest.mark.parametrize("query", ["id, n", "id, m", "id"], ids=["the same query", "another query", "the old query"])
def test_a_column_is_dropped_after_a_running_rebuild_that_reads_the_table(query: str) -> None:
    table = f"CREATE TABLE t (id INT PRIMARY KEY, n INT, m INT, gone INT) WITH ({KAFKA}) FORMAT UPSERT ENCODE JSON"
    view = "CREATE MATERIALIZED VIEW v AS SELECT {} FROM t"
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": script(table, view.format("id"))})
    warehouse.apply({"a.sql": script(table, view.format("id, n"))}, statements=1)
    folder = {"a.sql": script(table.replace(", gone INT", ""), view.format(query))}
    assert [(change.action, change.name) for change in warehouse.changes(folder)] == [("rebuild", "v"), ("alter", "t")]
    warehouse.apply(folder)
    assert warehouse.changes(folder) == ()


def test_an_object_that_only_a_running_rebuild_reads_can_be_created_again() -> None:
    """The definition of a new source was wrong, and the deployment that reads it was interrupted."""
    view, new = "CREATE MATERIALIZED VIEW v AS SELECT id FROM {}", BASE.replace("SOURCE s", "SOURCE new")
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": script(BASE, view.format("s"))})
    warehouse.apply({"a.sql": script(BASE, new, view.format("new"))}, statements=2)
    assert warehouse.snapshot.all("rebuild")
    folder = {"a.sql": script(BASE, new.replace("id INT", "id BIGINT"), view.format("new"))}
    assert [(change.action, change.name, bool(change.place)) for change in warehouse.changes(folder)] == [
        ("recreate", "v", False),
        ("recreate", "new", False),
        ("recreate", "new", True),
        ("recreate", "v", True),
    ]
    warehouse.apply(folder)
    assert warehouse.changes(folder) == ()
