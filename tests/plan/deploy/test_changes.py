"""Folder and catalog: the changes of each class, in a possible order, after which no difference is left."""

from __future__ import annotations

import pytest

from rw_sql.errors import SqlError
from rw_sql.plan.deploy.changes import compare
from rw_sql.plan.deploy.folder import read_folder
from rw_sql.plan.deploy.order import in_order, named_by
from rw_sql.plan.deploy.plan_file import from_json, require_current, require_still_there, saved_plan, to_json
from rw_sql.plan.statements.view.rebuild import rebuild_groups, swap_operation
from tests.plan.canned import HERE, CannedWorld, create_source
from tests.plan.tables import create_table, sink, tables_world

CONNECTION = f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')"
SOURCE = "CREATE SOURCE s (id INT) WITH (connector = 'kafka', connection = c, topic = 'old') FORMAT PLAIN ENCODE JSON"
TABLE = create_table("id INT PRIMARY KEY, name VARCHAR")
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT id FROM s"
TOP = "CREATE MATERIALIZED VIEW top AS SELECT id FROM v"
SINK = sink("UPSERT").replace("topic =", "primary_key = 'id', topic =")
ALL = (TOP, SINK, VIEW, TABLE, SOURCE, CONNECTION)


def script(*texts: str) -> str:
    return "".join(f"{text};\n" for text in texts)


def differ(world: CannedWorld, *texts: str) -> list[tuple[str, str, tuple[str, ...]]]:
    changes = compare(world.snapshot, read_folder([("a.sql", script(*texts))], {}))
    return [(c.action, c.name, tuple(" ".join(t.split()) for t in c.texts)) for c in changes]


def bring(world: CannedWorld, *texts: str, until: int | None = None) -> None:
    """Carries out the changes, at most the first ``until`` of them."""
    changes = compare(world.snapshot, read_folder([("a.sql", script(*texts))], {}))
    for change in changes[:until]:
        world.run(*change.texts)


def deployed() -> CannedWorld:
    world = tables_world()
    bring(world, *ALL)
    return world


def test_all_is_made_in_the_order_of_what_reads_what() -> None:
    world = tables_world()
    assert [(action, name) for action, name, _ in differ(world, *ALL)] == [
        ("create", "c"),
        ("create", "s"),
        ("create", "t"),
        ("create", "v"),
        ("create", "top"),
        ("create", "k"),
    ]
    bring(world, *ALL)
    assert differ(world, *ALL) == []
    assert differ(world, *reversed(ALL)) == []
    assert differ(world, *(" ".join(text.split()).replace("SELECT", "select") for text in ALL)) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            SOURCE,
            SOURCE.replace("topic", "properties.client.id = 'me', topic"),
            [("alter", "s", ("ALTER SOURCE s CONNECTOR WITH (properties.client.id = 'me')",))],
        ),
        (SOURCE, SOURCE.replace("'old'", "'new'"), [("unsafe", "s", ("ALTER SOURCE s UNSAFE SET (topic = 'new')",))]),
        (
            TABLE,
            TABLE.replace("name VARCHAR", "name VARCHAR, n INT"),
            [("alter", "t", ("ALTER TABLE t ADD COLUMN n INT",))],
        ),
        (
            CONNECTION,
            CONNECTION.replace(")", ", properties.client.id = 'x')"),
            [("alter", "c", ("ALTER CONNECTION c SET (properties.client.id = 'x')",))],
        ),
        (
            VIEW,
            VIEW.replace(" AS", " WITH (backfill_rate_limit = 9) AS"),
            [("alter", "v", ("ALTER MATERIALIZED VIEW v SET BACKFILL_RATE_LIMIT = 9",))],
        ),
        (
            TOP,
            "-- rw: renamed from top\n" + TOP.replace("top", "roof"),
            [("rename", "roof", ("ALTER MATERIALIZED VIEW top RENAME TO roof",))],
        ),
        (
            SINK,
            "-- rw: renamed from k\n" + SINK.replace("SINK k", "SINK kk"),
            [("rename", "kk", ("ALTER SINK k RENAME TO kk",))],
        ),
        (TOP, "", [("drop", "top", ("DROP MATERIALIZED VIEW top",))]),
        (SINK, SINK.replace("'new'", "'old'"), [("recreate", "k", ("DROP SINK k",)), ("recreate", "k", ())]),
    ],
)
def test_one_change(old: str, new: str, expected: list[tuple[str, str, tuple[str, ...]]]) -> None:
    world = deployed()
    texts = [new if text == old else text for text in ALL if new or text != old]
    found = differ(world, *texts)
    assert [(a, n, t) for a, n, t in found if t[0].split()[0] != "CREATE"] == [e for e in expected if e[2]]
    assert len(found) == len(expected)
    bring(world, *texts)
    assert differ(world, *texts) == []


def test_a_view_with_another_query_is_rebuilt_and_waited_for() -> None:
    world = deployed()
    texts = [VIEW.replace("SELECT id", "SELECT id, id AS more") if text == VIEW else text for text in ALL]
    ((action, name, statements),) = differ(world, *texts)
    assert (action, name) == ("rebuild", "v")
    assert statements == (
        "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id, id AS more FROM s",
        "WAIT MATERIALIZED VIEW v",
    )
    world.run(statements[0])
    # A process that was stopped there completes the rest.
    assert differ(world, *texts) == [
        ("rebuild", "v", ("WAIT MATERIALIZED VIEW v", *statements)),
        ("rebuild", "top", ("WAIT MATERIALIZED VIEW top",)),
    ]
    (group,) = rebuild_groups(world.snapshot)
    world.commit(swap_operation(world.snapshot, group, "the owner"))
    assert differ(world, *texts) == []


def test_a_view_whose_rows_were_sent_is_made_again_with_its_sink() -> None:
    world = deployed()
    texts = [TABLE, SOURCE, CONNECTION, VIEW, sink("PLAIN", "v")]
    bring(world, *texts)
    texts[3] = VIEW.replace("SELECT id", "SELECT id, id AS more")
    assert [(action, name) for action, name, _ in differ(world, *texts)] == [
        ("recreate", "k"),
        ("recreate", "v"),
        ("recreate", "v"),
        ("recreate", "k"),
    ]


def test_a_renamed_view_whose_readers_name_it_anew() -> None:
    world = deployed()
    texts = [t for t in ALL if t not in (VIEW, TOP)]
    texts += ["-- rw: renamed from v\n" + VIEW.replace("VIEW v", "VIEW w"), TOP.replace("FROM v", "FROM w")]
    assert [(action, name) for action, name, _ in differ(world, *texts)] == [("rename", "w")]
    bring(world, *texts)
    assert differ(world, *texts) == []


RENAMES = {
    "a chain": (("b", "a", "SELECT id FROM s"), ("c", "b", "SELECT id, 1 AS one FROM s")),
    "a chain, read backwards": (("c", "b", "SELECT id, 1 AS one FROM s"), ("b", "a", "SELECT id FROM s")),
    "the old name is given to a new view": (
        ("d", "a", "SELECT id FROM s"),
        ("a", "", "SELECT id, 2 AS two FROM s"),
        ("b", "", "SELECT id, 1 AS one FROM s"),
    ),
}


@pytest.mark.parametrize("views", RENAMES.values(), ids=RENAMES)
def test_renames_that_hand_on_a_name(views: tuple[tuple[str, str, str], ...]) -> None:
    before = (
        "CREATE MATERIALIZED VIEW a AS SELECT id FROM s",
        "CREATE MATERIALIZED VIEW b AS SELECT id, 1 AS one FROM s",
    )
    notes = {name: f"-- rw: renamed from {was}\n" if was else "" for name, was, _ in views}
    texts = [SOURCE, CONNECTION, *(f"{notes[n]}CREATE MATERIALIZED VIEW {n} AS {query}" for n, _, query in views)]
    for until in range(4):
        world = tables_world()
        bring(world, SOURCE, CONNECTION, *before)
        ids = {view.name: view.id for view in world.snapshot.all("materialized_view")}
        assert "rebuild" not in [action for action, _, _ in differ(world, *texts)]
        bring(world, *texts, until=until)
        bring(world, *texts)
        then = {view.name: view.id for view in world.snapshot.all("materialized_view")}
        assert {name: then[name] for name, was, _ in views if was} == {name: ids[was] for name, was, _ in views if was}
        assert differ(world, *texts) == []


EXCHANGES = {
    "two views": (("b", "a", "id"), ("a", "b", "id, 1 AS one"), ("c", "", "id, 2 AS two")),
    "one comment": (("b", "a", "id"), ("a", "", "id, 1 AS one"), ("c", "", "id, 2 AS two")),
    "three views": (("b", "a", "id"), ("c", "b", "id, 1 AS one"), ("a", "c", "id, 2 AS two")),
    "the other query changes too": (("b", "a", "id"), ("a", "b", "id, 7 AS seven"), ("c", "", "id, 2 AS two")),
}


@pytest.mark.parametrize("views", EXCHANGES.values(), ids=EXCHANGES)
def test_names_that_are_exchanged(views: tuple[tuple[str, str, str], ...]) -> None:
    made = {"a": "id", "b": "id, 1 AS one", "c": "id, 2 AS two"}
    top = "CREATE MATERIALIZED VIEW top AS SELECT id FROM {}"
    before = [f"CREATE MATERIALIZED VIEW {name} AS SELECT {columns} FROM s" for name, columns in made.items()]
    texts = [
        SOURCE,
        CONNECTION,
        *(
            (f"-- rw: renamed from {was}\n" if was else "")
            + f"CREATE MATERIALIZED VIEW {name} AS SELECT {columns} FROM s"
            for name, was, columns in views
        ),
    ]
    kept = {name: old for name, _, columns in views for old, listed in made.items() if listed == columns}
    for until in range(4):
        world = tables_world()
        bring(world, SOURCE, CONNECTION, *before, top.format("a"))
        ids = {view.name: view.id for view in world.snapshot.all("materialized_view")}
        # The reader of a follows the object, which is called b then.
        texts_then = [*texts, top.format("b")]
        found = differ(world, *texts_then)
        rebuilds = [name for action, name, _ in found if action == "rebuild"]
        assert rebuilds == [name for name, _, columns in views if columns not in made.values()]
        assert found[0][2][0].startswith("ALTER MATERIALIZED VIEW ")
        assert " SWAP WITH " in found[0][2][0]
        bring(world, *texts_then, until=until)
        bring(world, *texts_then)
        then = {view.name: view.id for view in world.snapshot.all("materialized_view")}
        assert {name: then[name] for name in kept} == {name: ids[old] for name, old in kept.items()}
        for group in rebuild_groups(world.snapshot):
            world.commit(swap_operation(world.snapshot, group, "the owner"))
        # The comments stay in the files.
        assert differ(world, *texts_then) == []


def test_tables_exchange_their_names_with_their_rows() -> None:
    one, other = (
        create_table(columns, name=name)
        for name, columns in (("t1", "id INT PRIMARY KEY"), ("t2", "k INT PRIMARY KEY"))
    )
    world = tables_world()
    bring(world, one, other)
    texts = [
        "-- rw: renamed from t1\n" + one.replace("t1", "t2", 1),
        "-- rw: renamed from t2\n" + other.replace("t2", "t1", 1),
    ]
    assert differ(world, *texts) == [("rename", "t2", ("ALTER TABLE t1 SWAP WITH t2",))]
    bring(world, *texts)
    assert differ(world, *texts) == []


def test_comments_alone_exchange_nothing() -> None:
    world = tables_world()
    same = ["CREATE MATERIALIZED VIEW a AS SELECT id FROM s", "CREATE MATERIALIZED VIEW b AS SELECT id FROM s"]
    bring(world, SOURCE, CONNECTION, *same)
    notes = [f"-- rw: renamed from {was}\n{text}" for was, text in zip("ba", same, strict=True)]
    assert differ(world, SOURCE, CONNECTION, *notes) == []


def test_a_note_whose_old_name_is_in_use_again_changes_nothing() -> None:
    world = deployed()
    texts = [*ALL, "-- rw: renamed from v\nCREATE MATERIALIZED VIEW w AS SELECT id FROM s"]
    assert [(action, name) for action, name, _ in differ(world, *texts)] == [("create", "w")]


def test_a_dropped_column_goes_after_the_rebuild_of_the_view_that_uses_it() -> None:
    world = tables_world()
    bring(world, TABLE, "CREATE MATERIALIZED VIEW named AS SELECT id, name FROM t")
    texts = (TABLE.replace(", name VARCHAR", ", n INT"), "CREATE MATERIALIZED VIEW named AS SELECT id FROM t")
    assert [statements for _, _, statements in differ(world, *texts)] == [
        ("ALTER TABLE t ADD COLUMN n INT",),
        ("CREATE OR REPLACE MATERIALIZED VIEW named AS SELECT id FROM t", "WAIT MATERIALIZED VIEW named"),
        ("ALTER TABLE t DROP COLUMN name",),
    ]
    bring(world, *texts, until=1)
    world.run("CREATE OR REPLACE MATERIALIZED VIEW named AS SELECT id FROM t")
    (group,) = rebuild_groups(world.snapshot)
    world.commit(swap_operation(world.snapshot, group, "the owner"))
    bring(world, *texts)
    assert differ(world, *texts) == []


@pytest.mark.parametrize(
    ("columns", "view", "why"),
    [
        (", label VARCHAR FROM name", "SELECT id, label AS name FROM t", "is renamed"),
        ("", "SELECT * FROM t", "is dropped"),
    ],
)
def test_what_uses_a_column_that_goes_away_is_made_again(columns: str, view: str, why: str) -> None:
    old = view.replace("label AS name", "name")
    world = tables_world()
    bring(
        world, TABLE, f"CREATE MATERIALIZED VIEW named AS {old}", "CREATE MATERIALIZED VIEW top AS SELECT id FROM named"
    )
    texts = (
        TABLE.replace(", name VARCHAR", columns),
        f"CREATE MATERIALIZED VIEW named AS {view}",
        "CREATE MATERIALIZED VIEW top AS SELECT id FROM named",
    )
    changes = compare(world.snapshot, read_folder([("a.sql", script(*texts))], {}))
    assert [(change.action, change.name) for change in changes] == [
        ("recreate", "top"),
        ("recreate", "named"),
        ("alter", "t"),
        ("recreate", "named"),
        ("recreate", "top"),
    ]
    assert why in changes[1].reason
    for until in range(len(changes)):
        half = tables_world()
        bring(half, TABLE, f"CREATE MATERIALIZED VIEW named AS {old}")
        bring(half, *texts, until=until)
        bring(half, *texts)
        assert differ(half, *texts) == []


def test_a_table_of_a_database_names_its_source() -> None:
    source = (
        "CREATE SOURCE pg WITH (connector = 'postgres-cdc', hostname = 'h', username = 'u', password = SECRET p, "
        "database.name = 'd', slot.name = 'x')"
    )
    table = "CREATE TABLE users (id INT PRIMARY KEY) FROM pg TABLE 'public.users'"
    one, other = read_folder([("a.sql", script(table)), ("b.sql", script(source))], {})
    assert named_by(one) == (("relation", "pg"),)
    assert [each.name for each in in_order((one, other))] == ["pg", "users"]


def test_what_is_made_again_takes_along_what_depends_on_it() -> None:
    world = deployed()
    other = create_source("s", "old").replace("id INT", "id BIGINT")
    texts = [other if text == SOURCE else text for text in ALL]
    found = differ(world, *texts)
    assert [
        (action, statements[0].split(" WITH")[0].split(" AS")[0].split(" (")[0]) for action, _, statements in found
    ] == [
        ("recreate", "DROP MATERIALIZED VIEW top"),
        ("recreate", "DROP MATERIALIZED VIEW v"),
        ("recreate", "DROP SOURCE s"),
        ("recreate", "CREATE SOURCE s"),
        ("recreate", "CREATE MATERIALIZED VIEW v"),
        ("recreate", "CREATE MATERIALIZED VIEW top"),
    ]
    # Wherever it is interrupted, the same command continues.
    for until in range(len(found)):
        half = deployed()
        bring(half, *texts, until=until)
        bring(half, *texts)
        assert differ(half, *texts) == []


def test_a_name_goes_to_an_object_of_another_kind() -> None:
    world = deployed()
    texts = [text for text in ALL if text not in (TOP, VIEW)]
    texts.append(create_table("id INT PRIMARY KEY", name="v", topic="new"))
    changes = compare(world.snapshot, read_folder([("a.sql", script(*texts))], {}))
    require_current(world.snapshot, saved_plan(world.snapshot, "/w", changes), "/w")
    bring(world, *texts)
    assert differ(world, *texts) == []


def test_three_at_once_break_off_anywhere() -> None:
    texts = [
        SOURCE.replace("topic", "source_rate_limit = 5, topic"),
        CONNECTION,
        TABLE.replace("name VARCHAR", "label VARCHAR FROM name, n INT"),
        "-- rw: renamed from v\n" + VIEW.replace("VIEW v", "VIEW w"),
        "CREATE MATERIALIZED VIEW more AS SELECT id FROM w",
    ]
    for until in range(8):
        world = deployed()
        bring(world, *texts, until=until)
        bring(world, *texts)
        assert differ(world, *texts) == []


def test_what_reads_an_object_that_the_folder_lacks_is_named() -> None:
    world = deployed()
    with pytest.raises(SqlError) as caught:
        differ(world, *(text for text in ALL if text != VIEW))
    assert caught.value.code == "RW306"
    assert '"top" at a.sql:1 reads materialized view "v"' in caught.value.message


def test_words_that_unsafe_statements_get() -> None:
    world = deployed()
    folder = read_folder([("a.sql", script(*(t.replace("topic = 'old'", "topic = 'new'") for t in ALL)))], {})
    texts = [text for change in compare(world.snapshot, folder, ("GAPS",)) for text in change.texts]
    assert any("ALLOW GAPS" in text for text in texts)


def test_a_saved_plan_is_carried_out_as_it_is_or_refused() -> None:
    world = deployed()
    texts = [SOURCE.replace("topic", "source_rate_limit = 5, topic") if t == SOURCE else t for t in ALL]
    texts.append("CREATE MATERIALIZED VIEW more AS SELECT id FROM s")
    changes = compare(world.snapshot, read_folder([("a.sql", script(*texts))], {}))
    text = to_json(saved_plan(world.snapshot, "/w", changes))
    plan = from_json(text, "plan.json")
    assert [change.texts for change in plan.changes] == [change.texts for change in changes]
    world.run("PAUSE SOURCE s", "CREATE MATERIALIZED VIEW unrelated AS SELECT id FROM t")
    require_current(world.snapshot, plan, "/w")
    for moves, said in (
        (("ALTER SOURCE s CONNECTOR WITH (properties.client.id = 'x')",), 'source "s" was changed by operation'),
        (("CREATE MATERIALIZED VIEW more AS SELECT id FROM t",), 'materialized view "more" was created'),
        ((create_source("more", "old"),), 'source "more" was created'),
        ((create_table("id INT PRIMARY KEY", name="more", topic="new"),), 'table "more" was created'),
        (("DROP SOURCE s CASCADE",), "was dropped by operation"),
    ):
        before = world.snapshot
        world.run(*moves)
        with pytest.raises(SqlError) as caught:
            require_current(world.snapshot, plan, "/w")
        assert caught.value.code == "RW309"
        assert said in caught.value.message
        world.snapshot = before
    with pytest.raises(SqlError, match="was made for warehouse"):
        require_current(world.snapshot, plan, "/other")


@pytest.mark.parametrize(
    "wanted",
    [
        [SOURCE, CONNECTION, TABLE, TOP, SINK, VIEW.replace("SELECT id", "SELECT id, id AS more")],
        [SOURCE.replace("PLAIN", "UPSERT"), CONNECTION, TABLE, VIEW, TOP, SINK],
        [SOURCE, CONNECTION, TABLE],
        [SOURCE, CONNECTION, VIEW, TOP],
    ],
    ids=["a rebuild", "a recreated source", "dropped views", "a dropped table"],
)
def test_a_saved_plan_is_outdated_if_more_depends_on_what_it_replaces(wanted: list[str]) -> None:
    world = deployed()
    changes = compare(world.snapshot, read_folder([("a.sql", script(*wanted))], {}))
    plan = from_json(to_json(saved_plan(world.snapshot, "/w", changes)), "plan.json")
    require_current(world.snapshot, plan, "/w")
    world.run(
        "CREATE MATERIALIZED VIEW newer AS SELECT id FROM v", "CREATE MATERIALIZED VIEW of_table AS SELECT id FROM t"
    )
    with pytest.raises(SqlError, match=r'"(newer|of_table)", which depends on "(s|v|t|c)", was created'):
        require_current(world.snapshot, plan, "/w")


def test_two_at_once_drop_nothing_that_the_other_has_made() -> None:
    world = deployed()
    texts = [SINK.replace("'new'", "'old'") if text == SINK else text for text in ALL]
    changes = compare(world.snapshot, read_folder([("a.sql", script(*texts))], {}))
    plan = from_json(to_json(saved_plan(world.snapshot, "/w", changes)), "plan.json")
    drop, create = plan.changes
    require_still_there(world.snapshot, drop)
    world.run(*drop.texts)
    with pytest.raises(SqlError, match='sink "k" was dropped by another session'):
        require_still_there(world.snapshot, drop)
    require_still_there(world.snapshot, create)
    world.run(*create.texts)
    with pytest.raises(SqlError, match='sink "k" was dropped and created again by another session'):
        require_still_there(world.snapshot, drop)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 9}', '{"format": 1, "changes": [{"action": 1}]}'])
def test_what_is_no_plan(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        from_json(text, "plan.json")
    assert caught.value.code == "RW212"


def test_schemas_of_a_folder_come_first_and_go_last() -> None:
    world = tables_world()
    raw = SOURCE.replace("SOURCE s ", "SOURCE raw.s ").replace("connection = c", "connection = raw.c")
    texts = (
        "CREATE MATERIALIZED VIEW mart.v AS SELECT id FROM raw.s",
        raw,
        CONNECTION.replace("CONNECTION c ", "CONNECTION raw.c "),
        "CREATE SCHEMA raw",
        "CREATE SCHEMA IF NOT EXISTS mart",
    )
    assert [(action, name) for action, name, _ in differ(world, *texts)] == [
        ("create", "raw"),
        ("create", "mart"),
        ("create", "raw.c"),
        ("create", "raw.s"),
        ("create", "mart.v"),
    ]
    bring(world, *texts)
    assert differ(world, *texts) == []
    moved = "-- rw: renamed from mart.v\nCREATE MATERIALIZED VIEW raw.w AS SELECT id FROM raw.s"
    assert differ(world, moved, *texts[1:4]) == [
        (
            "rename",
            "raw.w",
            (
                "ALTER MATERIALIZED VIEW mart.v SET SCHEMA raw",
                "ALTER MATERIALIZED VIEW raw.v RENAME TO raw.w",
            ),
        ),
        ("drop", "mart", ("DROP SCHEMA mart",)),
    ]
    bring(world, moved, *texts[1:4])
    assert differ(world, moved, *texts[1:4]) == []
    bring(world)
    assert not world.snapshot.records
