"""A confirmation is valid for one request: the same text, on the same state of the affected objects."""

from __future__ import annotations

import re

import pytest

from rw_sql.errors import SqlError
from rw_sql.plan.lower import lower
from rw_sql.plan.result.confirmation import (
    Question,
    hint_for_a_command,
    question_of,
    refusal,
    require_switch,
    token_of,
)
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import UnsafeBlock
from tests.plan.canned import CannedWorld, create_source, moved_world
from tests.plan.tables import create_table

MOVE = "ALTER SOURCE s UNSAFE SET (topic = 'new')"


def token(world: CannedWorld, text: str) -> str:
    return token_of(world.snapshot, world.plan(text))


def test_the_same_request_has_the_same_token_however_it_is_written() -> None:
    world = moved_world()
    assert token(world, MOVE) == token(world, "alter source \"s\" unsafe set (topic='new') -- once more")


@pytest.mark.parametrize(
    "other",
    [
        "ALTER SOURCE s UNSAFE SET (topic = 'old')",
        "ALTER SOURCE s UNSAFE SET (topic = 'new') REASON 'why'",
        "RESET SOURCE SPLITS s",
    ],
)
def test_another_request_has_another_token(other: str) -> None:
    world = moved_world()
    assert token(world, MOVE) != token(world, other)


@pytest.mark.parametrize(
    "between",
    [
        "ALTER SOURCE s UNSAFE SET (scan.startup.mode = 'latest')",
        "RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)",
    ],
)
def test_a_token_is_stale_once_its_source_has_changed(between: str) -> None:
    world = moved_world()
    before = token(world, MOVE)
    world.run(between)
    assert token(world, MOVE) != before


def test_a_token_outlives_what_does_not_touch_its_source() -> None:
    world = moved_world()
    world.put_topic("unrelated", (0, 1))
    before = token(world, MOVE)
    world.run(create_source("t", "unrelated"), "ALTER SYSTEM SET enable_unsafe_ops = true")
    assert token(world, MOVE) == before


def test_the_token_of_an_inject_fits_its_offsets_and_its_pause() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s")
    last = "INJECT SOURCE OFFSETS s TO LATEST"
    first = token(world, last)
    assert token(world, last) == first
    world.put_topic("old", (10, 60), (0, 50))
    assert token(world, last) != first
    world.put_topic("old", (10, 50), (0, 50))
    assert token(world, last) == first
    world.run("RESUME SOURCE s", "PAUSE SOURCE s")
    assert token(world, last) != first


def test_the_token_of_a_block_fits_the_positions_that_it_sets() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s")

    def of(*texts: str) -> str:
        block = UnsafeBlock(statements=tuple(parse_statement(text) for text in texts))
        return token_of(world.snapshot, lower(block, world.snapshot, world.inspector))

    latest, written = "INJECT SOURCE OFFSETS s TO LATEST", "INJECT SOURCE OFFSETS s VALUES ('0' = 45)"
    first = of(latest), of(written)
    assert (of(latest), of(written)) == first
    world.put_topic("old", (10, 60), (0, 50))
    assert of(latest) != first[0]
    assert of(written) == first[1]


@pytest.mark.parametrize("is_paused", [True, False])
@pytest.mark.parametrize(
    "statement",
    [
        "RESET SOURCE SPLITS s",
        "RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)",
        "ALTER SOURCE s UNSAFE SET (scan.startup.mode = 'latest')",
        "UNDO OPERATION 3",
        "BEGIN UNSAFE",
    ],
)
def test_a_token_is_stale_once_the_topic_was_made_again(statement: str, is_paused: bool) -> None:
    world = moved_world()
    world.run("ALTER SOURCE s UNSAFE SET (properties.client.id = 'me')")
    if is_paused:
        world.run("PAUSE SOURCE s")

    def token_now() -> str:
        if statement != "BEGIN UNSAFE":
            return token(world, statement)
        block = UnsafeBlock(statements=(parse_statement("RESET SOURCE SPLITS s"),))
        return token_of(world.snapshot, lower(block, world.snapshot, world.inspector))

    before = token_now()
    assert token_now() == before
    world.put_topic("old", (0, 60), (0, 60), life="second")
    assert token_now() != before


AGAIN = "RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)"


def test_the_token_of_a_paused_source_fits_what_is_lost_and_repeated() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s")
    before, moved = token(world, AGAIN), token(world, MOVE)
    # More records at the end change neither what AGAIN repeats nor how much of it is new.
    world.put_topic("old", (10, 55), (0, 50))
    assert (token(world, AGAIN), token(world, MOVE)) == (before, moved)
    # The topic's retention: fewer records are repeated, and then the unread ones are gone.
    world.put_topic("old", (20, 55), (0, 50))
    assert token(world, AGAIN) != before
    world.put_topic("old", (45, 55), (0, 50))
    assert token(world, AGAIN) != before
    # The second partition had been read to its end.
    world.put_topic("old", (10, 50), (0, 51))
    assert token(world, MOVE) != moved
    assert token(world, AGAIN) == before


def test_the_token_of_a_running_source_outlives_that_it_reads() -> None:
    world = moved_world()
    before, moved = token(world, AGAIN), token(world, MOVE)
    world.put_topic("old", (10, 70), (0, 60))
    world.read_on("s", old_0=70, old_1=59)
    assert (token(world, AGAIN), token(world, MOVE)) == (before, moved)
    world.put_topic("old", (10, 60), (0, 60), life="second")
    assert token(world, AGAIN) != before


def test_a_token_for_no_gap_does_not_confirm_one() -> None:
    world = moved_world()
    world.read_on("s", old_0=50)
    request = question_of(world.snapshot, world.plan(MOVE))
    assert not request.unallowed
    world.put_topic("old", (10, 5000), (0, 50))
    later = question_of(world.snapshot, world.plan(MOVE))
    assert later.unallowed == ("GAPS",)
    assert request.token not in later.tokens
    # The reader has read all of it: a user who confirmed the gap may continue without one.
    world.read_on("s", old_0=5000)
    without = question_of(world.snapshot, world.plan(MOVE))
    assert without.token == request.token
    assert without.tokens == {request.token, later.token}


def test_the_token_of_a_start_at_the_end_outlives_new_records() -> None:
    """Otherwise nobody could confirm it on a busy topic."""
    world = moved_world()
    world.run("PAUSE SOURCE s", "ALTER SOURCE s UNSAFE SET (scan.startup.mode = 'latest')")
    before = token(world, AGAIN)
    world.put_topic("old", (10, 55), (0, 55))
    gap_in_both = token(world, AGAIN)
    assert gap_in_both != before
    world.put_topic("old", (10, 80), (0, 80))
    assert token(world, AGAIN) == gap_in_both


def test_the_switch() -> None:
    world = moved_world()
    span = parse_statement(MOVE).span
    with pytest.raises(SqlError, match="not enabled") as caught:
        require_switch(world.snapshot, span)
    assert caught.value.span == span
    assert caught.value.hint == "ALTER SYSTEM SET enable_unsafe_ops = true"
    world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    require_switch(world.snapshot, span)
    world.run("ALTER SYSTEM SET enable_unsafe_ops = DEFAULT")
    with pytest.raises(SqlError, match="not enabled"):
        require_switch(world.snapshot, span)


@pytest.mark.parametrize("was_asked", [True, False])
def test_a_refusal_shows_the_preview_and_how_to_confirm(was_asked: bool) -> None:
    world = moved_world()
    plan = world.plan(MOVE)
    question = question_of(world.snapshot, plan)
    assert question.statement == MOVE
    error = refusal(question, plan, was_asked=was_asked)
    assert error.code == "RW304"
    assert error.detail == question.preview
    assert f"CONFIRM '{question.token}'" in (error.hint or "")
    assert "materialized view v" in question.preview


def test_the_error_for_a_block_says_that_the_block_has_ended() -> None:
    world = moved_world()
    block = UnsafeBlock(statements=(parse_statement(AGAIN),))
    hints = []
    for statement in (parse_statement(AGAIN), block):
        plan = lower(statement, world.snapshot, world.inspector)
        question = question_of(world.snapshot, plan)
        hints.append(refusal(question, plan, was_asked=True).hint or "")
    assert hints[0].startswith("nothing was changed; ")
    assert hints[1].startswith("nothing was changed, and the block has ended; ")


def hint_of(world: CannedWorld, text: str) -> str:
    plan = world.plan(text)
    assert plan.unallowed, text
    return refusal(question_of(world.snapshot, plan), plan, was_asked=False).hint or ""


@pytest.mark.parametrize(
    "text",
    [
        MOVE,
        AGAIN,
        "INJECT SOURCE OFFSETS s TO EARLIEST",
        "ALTER TABLE t UNSAFE SET (topic = 'new')",
        "UNDO OPERATION {epoch}",
    ],
)
def test_the_allow_clause_of_a_hint_fits_its_statement(text: str) -> None:
    world = moved_world()
    world.run(create_table("id INT", topic="old"))
    if text.startswith("INJECT"):
        world.run("PAUSE SOURCE s")
    if text.startswith("UNDO"):
        world.run(MOVE)
        world.put_topic("new", (0, 50), (3, 90), (0, 0))
        world.read_on("s", new_0=20, new_1=9)
        text = text.format(epoch=world.snapshot.epoch)
    allow = re.search(r"such as --yes, needs (ALLOW [A-Z, ]+) in the statement", hint_of(world, text))
    assert allow is not None
    before, switches, after = text.partition(" WITH ")  # ALLOW precedes WITH.
    assert not world.plan(f"{before} {allow[1]}{switches}{after}").unallowed


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        (create_source("s", "new"), "ALTER SOURCE s UNSAFE SET (…) ALLOW GAPS"),
        (create_table("id INT", topic="new"), "ALTER TABLE t UNSAFE SET (…) ALLOW GAPS"),
        (create_source('"Orders"', "new"), 'ALTER SOURCE "Orders" UNSAFE SET (…) ALLOW GAPS'),
        (create_source('public."Orders"', "new"), 'ALTER SOURCE "Orders" UNSAFE SET (…) ALLOW GAPS'),
    ],
)
@pytest.mark.parametrize("more", ["", "source_rate_limit = 5, "])
def test_the_hint_for_create_or_replace_names_the_statement_that_has_an_allow_clause(
    text: str, instead: str, more: str
) -> None:
    world = moved_world()
    world.run(create_table("id INT", topic="old"), create_source('"Orders"', "old"))
    world.read_on("Orders", old_0=40, old_1=50)
    hint = hint_of(world, text.replace("CREATE ", "CREATE OR REPLACE ", 1).replace("WITH (", f"WITH ({more}"))
    assert f"such as --yes, needs {instead} in place of CREATE OR REPLACE" in hint
    assert not world.plan(instead.replace("…", "topic = 'new'")).unallowed


@pytest.mark.parametrize(
    ("is_outdated", "hint"),
    [
        (
            False,
            "add --confirm 0c to the same command; --yes needs a plan that is made with it: "
            "rw-sql diff FOLDER --allow gaps,duplicates --file plan.json",
        ),
        (
            True,
            "make the plan again: rw-sql diff FOLDER --file plan.json; and apply it with --confirm 0c; "
            "--yes needs a plan that is made with --allow gaps,duplicates",
        ),
    ],
)
def test_the_hint_for_a_saved_plan_names_no_option_that_is_refused_with_it(is_outdated: bool, hint: str) -> None:
    question = Question(statement=MOVE, preview="", token="0c", unallowed=("GAPS", "DUPLICATES"))
    begin = "this statement changed nothing; to run it with exactly this preview, "
    assert hint_for_a_command(question, plan_file="plan.json", is_outdated=is_outdated) == begin + hint
    safe = Question(statement=MOVE, preview="", token="0c")
    assert "--yes" not in hint_for_a_command(safe, plan_file="plan.json", is_outdated=is_outdated)
