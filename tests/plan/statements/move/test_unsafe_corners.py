"""Corners of UNSAFE SET, RESET and INJECT where a plain reading would repeat or lose rows."""

from __future__ import annotations

import json
import re

import pytest

from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import PauseSource, ResumeSource
from tests.plan.canned import HERE, CannedWorld, create_source, moved_world, refused


def paused_world(*options: str) -> CannedWorld:
    world = moved_world(*options)
    world.run("PAUSE SOURCE s")
    return world


def test_the_last_seen_convention_is_for_written_offsets_only() -> None:
    world = paused_world()
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 20) WITH (CONVENTION = 'last_seen')")
    assert world.states("s") == {"old:0": 21, "old:1": 50}
    error = refused(world, "INJECT SOURCE OFFSETS s TO EARLIEST WITH (CONVENTION = 'last_seen')")
    assert error.code == "RW212"


@pytest.mark.parametrize("other", [{"cluster": "another"}, {"incarnation": "an earlier life"}])
def test_a_saved_state_of_another_upstream_is_not_continued_by_number(other: dict[str, str]) -> None:
    state = json.dumps({"offset": 20, **other})
    assert refused(paused_world(), f"INJECT SOURCE OFFSETS s VALUES ('0' = '{state}')").code == "RW210"


def test_a_saved_state_of_another_cluster_is_reported_though_the_upstream_is_silent() -> None:
    world = paused_world()
    world.silent.add(HERE)
    state = json.dumps({"offset": 20, "cluster": "another"})
    assert refused(world, f"INJECT SOURCE OFFSETS s VALUES ('0' = '{state}') WITH (VALIDATE = false)").code == "RW210"
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 20) WITH (VALIDATE = false)")
    assert world.states("s") == {"old:0": 20, "old:1": 50}


def test_a_reset_of_some_splits_shows_no_others_moved() -> None:
    world = paused_world()
    world.put_topic("old", (0, 5), (0, 5), life="second")
    preview = world.plan("RESET SOURCE SPLITS s FOR SPLITS ('0')").preview
    assert preview is not None
    assert [(split.split, split.old, split.new) for split in preview.splits] == [("old:0", 40, 0), ("old:1", 50, 50)]


def test_for_splits_picks_from_a_file() -> None:
    world = paused_world()
    world.files["/offsets"] = '{"old:0": 11, "old:1": 12}'
    world.run("INJECT SOURCE OFFSETS s FROM FILE '/offsets' FOR SPLITS ('1')")
    assert world.states("s") == {"old:0": 40, "old:1": 12}
    assert refused(world, "INJECT SOURCE OFFSETS s VALUES ('0' = 20) FOR SPLITS ('0')").code == "RW212"


def test_a_forgotten_split_is_not_taken_for_a_new_partition() -> None:
    world = moved_world("scan.startup.mode = 'latest'")
    world.run(
        "PAUSE SOURCE s",
        "RESET SOURCE SPLITS s FOR SPLITS ('0') WITH (REDISCOVER = false, FORGET_OFFSETS = true)",
    )
    assert world.assigned("s") == ("old:1",)
    world.run("RESUME SOURCE s")
    assert world.states("s") == {"old:0": 50, "old:1": 50}


def test_reset_of_some_splits_that_all_exist_commits_nothing() -> None:
    world = moved_world()
    plan = world.run("RESET SOURCE SPLITS s FOR SPLITS ('0')")
    assert plan.operation is None
    assert [row.change for row in plan.changes] == ["KEPT", "NOTHING"]


def test_reset_of_some_splits_takes_up_no_others() -> None:
    world = moved_world()
    world.put_topic("old", (10, 50), (0, 50), (0, 7))
    world.run("RESET SOURCE SPLITS s FOR SPLITS ('0') WITH (FORGET_OFFSETS = true)")
    assert world.assigned("s") == ("old:0", "old:1")


def test_a_move_shows_what_it_leaves_unread() -> None:
    shown = paused_world().explained("ALTER SOURCE s UNSAFE SET (topic = 'new')")
    assert "GAP 10 (left unread)" in shown
    assert "in all: DUPLICATES 0, GAP 10" in shown


def test_paused_is_no_property() -> None:
    assert refused(moved_world(), "ALTER SOURCE s UNSAFE SET (paused = 'true')").code == "RW204"


def test_the_caret_stays_in_the_statement() -> None:
    world = moved_world()
    error = refused(world, "ALTER SOURCE s UNSAFE SET (scan.startup.mode = 'timestamp')")
    assert error.line == 1
    error = refused(world, "ALTER SOURCE s UNSAFE SET (topic = 'new'), UNSET (properties.bootstrap.server)")
    assert (error.code, error.line, error.column) == ("RW207", 1, 51)


def test_resume_all_resolves_latest_for_what_it_frees() -> None:
    world = moved_world("scan.startup.mode = 'latest'")
    world.silent.add(HERE)
    world.run("PAUSE ALL SOURCES", "ALTER SOURCE s UNSAFE SET (topic = 'new') WITH (VALIDATE = false)")
    assert world.assigned("s") == ("old:0", "old:1")
    world.silent.clear()
    world.run("RESUME ALL SOURCES")
    assert {split: at for split, at in world.states("s").items() if split.startswith("new")} == {
        "new:0": 5,
        "new:1": 9,
        "new:2": 0,
    }


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ("(d INTERVAL)", "RW206"),
        ("(s STRUCT<d INTERVAL>)", "RW206"),
        ("(id INT) INCLUDE key AS k INCLUDE partition AS k", "RW105"),
        ("(k INT) INCLUDE key AS k", "RW105"),
        ("(id INT) INCLUDE key AS _rw_split", "RW105"),
    ],
)
def test_columns_that_no_log_could_hold(columns: str, code: str) -> None:
    world = moved_world()
    text = create_source("t", "old").replace("(id INT)", columns, 1)
    assert refused(world, text).code == code


@pytest.mark.parametrize("clause", ["ENCODE JSON (nonsense = 'x')", "ENCODE CSV (delimiter = 'tab')"])
def test_an_option_that_would_be_ignored_is_refused(clause: str) -> None:
    text = create_source("t", "old").replace("ENCODE JSON", clause)
    assert refused(moved_world(), text).code == "RW212"


def test_hints_name_the_source_that_was_meant() -> None:
    """``PAUSE SOURCE Orders`` without quotes would mean the source ``orders``."""
    world = CannedWorld()
    world.put_topic("old", (10, 50))
    world.run(create_source('"Orders"', "old"))
    error = refused(world, "INJECT SOURCE OFFSETS \"Orders\" VALUES ('0' = 20)")
    written = re.findall(r"\w+ SOURCE \S+", error.hint or "")
    assert len(written) == 2
    for text in written:
        statement = parse_statement(text)
        assert isinstance(statement, PauseSource | ResumeSource)
        assert statement.name is not None
        assert statement.name.key == "Orders"
    error = refused(world, "ALTER SOURCE \"Orders\" UNSAFE SET (connector = 'nats')")
    assert 'CREATE SOURCE "Orders_2" ' in (error.hint or "")


@pytest.mark.parametrize(
    ("statement", "is_needed"),
    [
        ("ALTER SOURCE s UNSAFE SET (topic = 'new')", True),
        ("ALTER SOURCE s UNSAFE SET (properties.fetch.max.bytes = '1000')", False),
        ("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)", False),
        ("RESET SOURCE SPLITS s WITH (REDISCOVER = false, FORGET_OFFSETS = true)", False),
    ],
)
def test_a_move_names_the_backfills_that_need_what_is_left(statement: str, is_needed: bool) -> None:
    world = moved_world()
    told = "the backfill of v is not complete and needs records that the source leaves behind"
    assert told not in world.explained(statement)
    world.begin_backfill("v")
    assert (told in " ".join(world.explained(statement).split())) == is_needed
