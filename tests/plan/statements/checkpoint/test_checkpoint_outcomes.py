"""An UNDO of a change to a foreign checkpoint that failed, or whose process was killed, can be repeated."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import CANNOT_UNDO, CANNOT_UNDO_CHECKPOINT, CHECKPOINT_IN_USE, SqlError
from rw_sql.metastore import Metastore
from rw_sql.plan.statements.checkpoint.checkpoint_outcomes import NOT_KNOWN
from rw_sql.runtime.control import checkpoint_folders, executor
from rw_sql.runtime.control.outcomes import APPLIED, completed, is_left_open
from rw_sql.session.sparkless import answer, sparkless
from rw_sql.syntax import parse_statement
from tests.checkpoints.made import kafka, make_checkpoint, tree
from tests.plan.canned import CannedWorld, moved_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rw_sql.plan.result.external_actions import Effect


def injected(path: Path) -> tuple[CannedWorld, int]:
    """A catalog with an INJECT CHECKPOINT OFFSETS that was carried out, and the operation's number."""
    made = make_checkpoint(path / "c", [kafka(a=[20])], [kafka(a=[40])])
    world = CannedWorld()
    carried_out(world.run(f"INJECT CHECKPOINT OFFSETS '{made}' VALUES ('a:0' = 12)").effect)
    return world, world.operations[0].epoch


def carried_out(effect: Effect | None) -> None:
    assert effect is not None
    checkpoint_folders.carry_out(replace(effect, watch_seconds=0), actor="operator")


def ended(world: CannedWorld, outcome: str | None) -> int:
    """Sets the outcome of the newest operation, and returns the operation's number."""
    newest, *earlier = world.operations
    world.operations = (replace(newest, outcome=outcome), *earlier)
    return newest.epoch


@pytest.mark.parametrize("outcome", ["failed: a job is using the checkpoint", NOT_KNOWN])
def test_an_undo_without_effect_is_repeated(tmp_path: Path, outcome: str) -> None:
    world, operation = injected(tmp_path)
    world.run(f"UNDO OPERATION {operation}")
    failed = ended(world, outcome)
    shown = world.plan("SHOW UNSAFE OPERATIONS").table
    assert shown is not None
    listed = {row[0]: row[10] for row in shown.rows}
    assert listed == {operation: f"UNDO OPERATION {operation}", failed: None}
    carried_out(world.run(f"UNDO OPERATION {operation}").effect)
    done = ended(world, APPLIED)
    with pytest.raises(SqlError, match=f"operation {done} has already undone it") as caught:
        world.plan(f"UNDO OPERATION {operation}")
    assert caught.value.hint == "to set the offsets again, use INJECT CHECKPOINT OFFSETS"


def test_a_repeated_undo_leaves_an_earlier_equal_rewrite(tmp_path: Path) -> None:
    world, operation = injected(tmp_path)
    (record,) = world.operations
    # The files were rewritten by an equal statement, 10 s before this operation.
    rewritten = datetime.now(UTC).timestamp() * 1000
    world.operations = (replace(record, at_ms=int(rewritten) + 10_000),)
    with pytest.raises(SqlError, match="is older than the operation") as caught:
        world.plan(f"UNDO OPERATION {operation}")
    assert caught.value.kind is CANNOT_UNDO_CHECKPOINT


def test_an_undo_that_failed_is_not_undone(tmp_path: Path) -> None:
    world, operation = injected(tmp_path)
    world.run(f"UNDO OPERATION {operation}")
    failed = ended(world, "failed: a job is using the checkpoint")
    with pytest.raises(SqlError, match="it failed and changed nothing") as caught:
        world.plan(f"UNDO OPERATION {failed}")
    assert caught.value.kind is CANNOT_UNDO


def test_no_owner_completes_the_undo_of_a_checkpoint(tmp_path: Path) -> None:
    world, operation = injected(tmp_path)
    world.run(f"UNDO OPERATION {operation}")
    (record, *_) = world.operations
    assert not is_left_open(record)
    (shown,) = completed([record], applied_epoch=record.epoch)
    assert shown.outcome == NOT_KNOWN
    moved = moved_world()
    moved.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 15)")
    moved.run(f"UNDO OPERATION {moved.operations[0].epoch}")
    assert is_left_open(moved.operations[0])


def test_a_refused_undo_is_repeated_in_a_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_checkpoint(tmp_path / "c", [kafka(a=[20])], [kafka(a=[40])])
    before = tree(path)
    refuses: list[bool] = []

    def carry_out(effect: Effect, *, actor: str, running: Callable[[str], str | None]) -> int:
        if refuses:
            refuses.pop()
            raise SqlError(CHECKPOINT_IN_USE, "a job is using the checkpoint", hint="stop the job, and repeat this")
        return checkpoint_folders.carry_out(replace(effect, watch_seconds=0), actor=actor, running=running)

    monkeypatch.setattr(executor, "carry_out", carry_out)
    warehouse = str(tmp_path / "w")
    Metastore.open(warehouse).flush(with_upkeep=True)
    with sparkless(warehouse) as context:

        def run(text: str) -> int:
            answer(context, parse_statement(text), ask=lambda _: True)
            return context.metastore.snapshot().epoch

        run("ALTER SYSTEM SET enable_unsafe_ops = true")
        operation = run(f"INJECT CHECKPOINT OFFSETS '{path}' VALUES ('a:0' = 12)")
        refuses.append(True)
        with pytest.raises(SqlError, match="a job is using the checkpoint"):
            run(f"UNDO OPERATION {operation}")
        undone = run(f"UNDO OPERATION {operation}")
        outcomes = [record.outcome for record in context.metastore.operations(since=operation)]
    assert undone == operation + 2
    assert outcomes == [APPLIED, "failed: a job is using the checkpoint", APPLIED]
    assert {name: text for name, text in tree(path).items() if "rw_sql" not in name} == before
