"""Runs statements. The steps of a statement are: plan, confirm, commit, follow up, and return rows."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from random import uniform
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from rw_sql.errors import BLOCK_ABORTED, INVALID_CONFIRMATION, NOT_SUPPORTED, SqlError
from rw_sql.metastore import ConcurrentCommit
from rw_sql.metastore.commits import user_name
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.job_ids import view_job
from rw_sql.model.object_lookup import find_table, find_view
from rw_sql.model.source_readers import is_running
from rw_sql.plan.lower import lower, lower_explained
from rw_sql.plan.result.confirmation import question_of, refusal, require_switch, token_of
from rw_sql.plan.result.explain import explain_table
from rw_sql.plan.result.picture import explained
from rw_sql.plan.result.plan import Plan, ResultRow, Table
from rw_sql.plan.statements.checkpoint.shown_rewrite import is_rewrite_current
from rw_sql.plan.statements.move.block import SHOWN_INSIDE, lower_inside, require_inside
from rw_sql.plan.statements.move.shown_inject import is_inject_current
from rw_sql.plan.statements.session.search_path import resolved
from rw_sql.plan.statements.view.backfill_plan import RATE_LIMIT, with_rate_limit
from rw_sql.runtime.control.checkpoint_folders import carry_out
from rw_sql.runtime.control.follow_up import FollowUp, is_awaited
from rw_sql.runtime.control.group_owners import require_owners
from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.runtime.control.outcomes import APPLIED, effect_failed, log_commit, still_overtaken
from rw_sql.runtime.control.quiesce import (
    COMMIT_SECONDS,
    LOCK_SECONDS,
    are_valid,
    lock_sources,
    once_stopped,
    try_release,
)
from rw_sql.runtime.control.session_state import Block, SessionState
from rw_sql.runtime.control.statement_kinds import may_be_unsafe
from rw_sql.runtime.observe.flush import flush
from rw_sql.runtime.observe.wait_statement import refreshes_without_end, wait_until_made
from rw_sql.runtime.spark.interrupts import StatementInterrupted, shielded
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.gc_pause import gc_paused
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.stall_timeout import StallTimeout
from rw_sql.runtime.support.store_errors import store_errors
from rw_sql.syntax import statements as ast

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import QuiesceLock
    from rw_sql.metastore.records import Operation
    from rw_sql.runtime.control.owner import Owner
    from rw_sql.runtime.jobs.context import Context

_ATTEMPTS = 20
"""After this number of attempts, in each of which another statement was committed first, a statement fails if it has
asked the user for a confirmation. Any other statement tries again until ``statement_timeout``."""
_PAUSE_SECONDS = 0.5
"""The maximum pause in seconds before a further attempt."""
_QUICK_ANSWER_SECONDS = 10.0
"""If a user takes more seconds than this to confirm a preview, the statement requests the upstream's state again."""
_QUICK_COMMIT_SECONDS = LOCK_SECONDS - COMMIT_SECONDS
"""This limit replaces ``_QUICK_ANSWER_SECONDS`` for a block and for a REWIND, because users need longer to read their
previews. After this time, the quiesce locks are too old for a commit."""
_COMMITTED = "stopped waiting for the jobs; the statement stays committed"
_CHANGES = (("object", "STRING"), ("change", "STRING"), ("detail", "STRING"))


@dataclass(slots=True)
class _Commit:
    """The result of a commit. ``epoch`` is None until the statement is committed. ``error`` is the error of the commit
    or of the plan's effect; None if both succeeded. A ConcurrentCommit leads to a new attempt and is not stored."""

    epoch: int | None = None
    error: Exception | None = None


class Executor:
    """Runs the statements of one attached warehouse.

    Thread-safe. ``owner`` runs the jobs in this process; None if this process runs no jobs.
    """

    def __init__(self, context: Context, owner: Owner | None) -> None:
        self._context = context
        self.owner = owner
        self._follow_up = FollowUp(context, lambda: self.owner)

    def run(self, statement: ast.Statement, session: SessionState) -> Table:
        """Runs one statement and returns its rows.

        If an SqlError is raised, nothing was changed, unless the error's message says that the statement is committed
        or may be committed.
        """
        self._context.sessions.require_alive()
        # Converts errors of the store until the statement is committed. FollowUp handles errors of the store after the
        # commit.
        with store_errors(self._context.sessions.require_alive):
            if session.block is not None:
                return self._run_inside(statement, session, session.block)
            return self._run_outside(statement, session)

    def _run_outside(self, statement: ast.Statement, session: SessionState) -> Table:
        match statement:
            case ast.BeginUnsafe(reason=reason):
                require_switch(self._context.metastore.snapshot(), statement.span)
                session.block = Block(reason=reason)
                detail = "statements are collected until COMMIT; ROLLBACK discards them"
                return _rows((ResultRow(object="", change="BEGIN", detail=detail),))
            case ast.Commit() | ast.Rollback():
                return _rows((ResultRow(object="", change="NOTICE", detail="no block is in progress"),))
            case ast.Explain(statement=inner):
                _, plan = self._plan(inner, session, lower_explained)
                return explained(plan, statement)
            case ast.Flush():
                discover_now = self.owner.discover_now if self.owner is not None else None
                return _rows(flush(self._context, session.timeout, discover_now, session.waiting))
            case ast.Wait():
                return _rows(self._wait(statement, session))
            case ast.Confirm():
                return self._confirm(statement, session)
            case _:
                return self._run(statement, session)

    def _wait(self, statement: ast.Wait, session: SessionState) -> tuple[ResultRow, ...]:
        """Runs WAIT, which blocks until the backfills, rebuilds and refreshes of the whole warehouse or, if the
        statement has a name, of the named object have finished."""
        jobs = None
        snapshot = self._context.metastore.snapshot()
        resolved_wait = resolved(statement, snapshot, session.search_path)
        if isinstance(resolved_wait, ast.Wait):
            statement = resolved_wait
        if statement.name is not None:
            match statement.kind:
                case "MATERIALIZED VIEW":
                    jobs = (view_job(find_view(snapshot, statement.name).id),)
                case "TABLE":
                    jobs = (view_job(find_table(snapshot, statement.name).id),)
                case kind:
                    raise SqlError(
                        NOT_SUPPORTED,
                        f"WAIT {kind} is not supported yet",
                        span=statement.span,
                        hint="WAIT, WAIT MATERIALIZED VIEW name or WAIT TABLE name",
                    )
        session.waiting.begin("waiting for backfills, rebuilds and refreshes", jobs)
        notices = wait_until_made(self._context, jobs, session.timeout, session.on_progress, gives_up=True)
        notices += refreshes_without_end(snapshot, self._context.metastore.snapshot(), jobs)
        return notices or (ResultRow(object="", change="WAITED", detail="no backfill, rebuild or refresh is running"),)

    def _run_inside(self, statement: ast.Statement, session: SessionState, block: Block) -> Table:
        """Runs one statement inside a block. An error aborts the block."""
        if isinstance(statement, ast.Rollback):
            session.block = None
            return _rows((ResultRow(object="", change="ROLLBACK", detail="nothing was changed"),))
        if block.is_aborted:
            ends = isinstance(statement, ast.Commit)
            if ends:
                session.block = None
            raise SqlError(
                BLOCK_ABORTED,
                "the block was aborted by an error: none of its statements took effect"
                if ends
                else "the block is aborted: statements are ignored until ROLLBACK",
                span=statement.span,
                hint="BEGIN UNSAFE begins another one" if ends else "ROLLBACK",
            )
        if isinstance(statement, ast.Commit):
            # COMMIT ends the block, whether it succeeds or not. If COMMIT is refused, the token in the error identifies
            # the block.
            session.block = None
            return self._run(_whole(block, statement), session)
        try:
            return self._collect(statement, session, block)
        except BaseException:
            # Any exception, including Ctrl-C, aborts the block, because COMMIT may run only complete blocks.
            block.is_aborted = True
            raise

    def _collect(self, statement: ast.Statement, session: SessionState, block: Block) -> Table:
        """Checks a statement against the block's earlier statements, and stores it until COMMIT. SHOW, EXPLAIN and SET
        run at once."""
        match statement:
            case ast.BeginUnsafe():
                detail = "a block is already in progress"
                return _rows((ResultRow(object="", change="NOTICE", detail=detail),))
            case ast.Explain(statement=ast.Commit()):
                _, plan = self._plan(_whole(block, statement), session)
                return explained(plan, statement)
            case ast.SetParameter():
                return self._run(statement, session)
        shown = statement.statement if isinstance(statement, ast.Explain) else statement
        is_shown = isinstance(shown, SHOWN_INSIDE) or shown is not statement
        if not isinstance(shown, SHOWN_INSIDE):
            require_inside(shown)
        dialect = session.parameter("query_dialect")

        def collected() -> tuple[ast.Statement, Plan]:
            snapshot = self._context.metastore.snapshot()
            inspector = WarehouseInspector(self._context, snapshot)
            # Names are resolved now, because COMMIT must refer to the same objects even if the search path has changed
            # by then.
            now = resolved(shown, snapshot, session.search_path, dialect)
            lower_as = partial(lower, query_dialect=dialect)
            return now, lower_inside(tuple(block.statements), now, snapshot, inspector, lower_as)

        shown, plan = once_stopped(collected, session, self._wake)
        statement = shown if not is_shown else statement
        if is_shown:
            if isinstance(statement, ast.Explain):
                return explained(plan, statement)
            return explain_table(plan) if plan.table is None else plan.table
        block.statements.append(statement)
        answer = ResultRow(object="", change="NOTICE", detail="collected: COMMIT runs it")
        return _rows((*plan.changes, answer))

    def _plan(
        self, statement: ast.Statement, session: SessionState, lower_as: Callable[..., Plan] = lower
    ) -> tuple[Snapshot, Plan]:
        """Returns the statement's plan and the catalog on which the plan is based."""
        return once_stopped(lambda: self._plan_now(statement, session, lower_as), session, self._wake)

    def _plan_now(
        self, statement: ast.Statement, session: SessionState, lower_as: Callable[..., Plan]
    ) -> tuple[Snapshot, Plan]:
        if isinstance(statement, ast.CreateMaterializedView | ast.CreateTable) and not statement.or_replace:
            statement = with_rate_limit(statement, session.parameter(RATE_LIMIT))
        session.waiting.begin("planning")
        snapshot = self._context.metastore.snapshot()
        with gc_paused():
            plan = lower_as(
                statement,
                snapshot,
                WarehouseInspector(self._context, snapshot),
                query_dialect=session.parameter("query_dialect"),
                shares_sources=session.parameter("streaming_use_shared_source") == "true",
                search_path=session.search_path,
            )
        return snapshot, plan

    def _plan_as(self, shown: Plan | None, confirmed: set[str]) -> tuple[Snapshot, Plan] | None:
        """Returns the plan ``shown`` and the snapshot on which it will be committed, if ``shown`` is confirmed and
        still has the effect that its preview shows. Otherwise, returns None, and the statement must be planned again.

        Only the plan of an INJECT is used again, because a new plan would resolve TO LATEST to other offsets. Since the
        preview, no reader can have advanced the positions: the source is paused, or no job writes the checkpoint. Other
        statements are always planned again, because their plans contain epochs and positions that advance.

        If the plan would have another effect because the upstream has changed, the plan's token is removed from
        ``confirmed``. A new plan may have the same token, but no user has seen its preview.
        """
        if shown is None or not isinstance(shown.statement, ast.InjectSourceOffsets | ast.InjectCheckpointOffsets):
            return None
        snapshot = self._context.metastore.snapshot()
        token = token_of(snapshot, shown)
        if token not in confirmed:
            return None
        if self._is_current(shown, snapshot):
            return snapshot, shown
        confirmed.discard(token)
        return None

    def _is_current(self, plan: Plan, snapshot: Snapshot) -> bool:
        """Requests the state of the upstream again. Returns True if the plan of an INJECT still has the effect that its
        preview shows."""
        is_current = (
            is_rewrite_current if isinstance(plan.statement, ast.InjectCheckpointOffsets) else is_inject_current
        )
        return is_current(plan, snapshot, WarehouseInspector(self._context, snapshot))

    def _outlasts(self, plan: Plan, snapshot: Snapshot, confirmed: set[str]) -> bool:
        """True for the plan of an INJECT that still has the effect of its preview. A late confirmation applies to this
        plan.

        Any other statement is planned again, because the upstream may have changed before the late confirmation. A new
        plan with the same token counts as confirmed. The new plan of an INJECT must always be confirmed again.
        """
        if not isinstance(plan.statement, ast.InjectSourceOffsets | ast.InjectCheckpointOffsets):
            return False
        if self._is_current(plan, snapshot):
            return True
        confirmed.clear()
        return False

    def _confirm(self, statement: ast.Confirm, session: SessionState) -> Table:
        refused = session.refused.get(statement.token)
        if refused is None:
            raise SqlError(
                INVALID_CONFIRMATION,
                f"token '{statement.token}' belongs to no refused statement of this session",
                span=statement.token_span,
                hint="run the statement again: its error contains the token",
            )
        session.confirmed.add(statement.token)
        shown = session.shown.get(statement.token)
        try:
            return self._run(refused, session, shown)
        finally:
            session.confirmed.discard(statement.token)
            # If the statement was refused again with the same token, the token now belongs to the new preview.
            if session.shown.get(statement.token) is shown:
                session.refused.pop(statement.token, None)
                session.shown.pop(statement.token, None)

    def _run(self, statement: ast.Statement, session: SessionState, shown: Plan | None = None) -> Table:
        """Runs a statement. ``shown`` is the plan of the refused statement that CONFIRM repeats; None without
        CONFIRM."""
        started = time.monotonic()
        in_advance = may_be_unsafe(statement) and session.parameters.pop("unsafe_confirmation", "no") == "yes"
        confirmed: set[str] = set()
        for attempt in count(1):
            commit, attempted = _Commit(), time.monotonic()
            try:
                locked_at, locks = self._lock(statement, session)
                try:
                    snapshot, plan = self._plan_as(shown, session.confirmed) or self._plan(statement, session)
                    if locked_at not in (None, snapshot.epoch):
                        raise ConcurrentCommit(snapshot.epoch, locked_at or 0)
                    if plan.table is not None:
                        return plan.table
                    if plan.session is not None:
                        _set_parameter(session, *plan.session)
                    if plan.operation is None:
                        return _rows(plan.changes)
                    fault("statement.planned")
                    require_owners(self._context, snapshot, plan)
                    if plan.is_unsafe:
                        waited = self._pass_gate(snapshot, plan, session, confirmed, in_advance=in_advance)
                        is_long = isinstance(statement, ast.UnsafeBlock | ast.RewindSource)
                        is_late = waited > (_QUICK_COMMIT_SECONDS if is_long else _QUICK_ANSWER_SECONDS)
                        if not are_valid(snapshot, locks) or (
                            is_late and not self._outlasts(plan, snapshot, confirmed)
                        ):
                            raise ConcurrentCommit(snapshot.epoch, snapshot.epoch)
                    session.waiting.begin("committing")
                    operation = replace(plan.operation, actor=plan.operation.actor or session.user or user_name())
                    self._context.sessions.require_alive()
                    fault("statement.before_commit")
                    with shielded():
                        epoch = self._commit(commit, operation, plan, snapshot, started)
                except ConcurrentCommit as overtaken:
                    waited = time.monotonic() - started
                    if attempt >= _ATTEMPTS and (confirmed or waited > session.timeout):
                        longer = None if confirmed else StallTimeout(session.timeout).longer
                        raise still_overtaken(overtaken, attempt, waited, longer) from None
                    is_refused = True
                else:
                    is_refused = False
                finally:
                    try_release(self._context, locks, self._wake)
                if is_refused:
                    time.sleep(uniform(0.0, _longest_pause(attempt, time.monotonic() - attempted)))
                    continue
                notices = self._follow_up.finish(plan, snapshot, epoch, session, started)
                return _rows((*plan.changes, *notices))
            except KeyboardInterrupt:
                if commit.error is not None:
                    # The error came before the interrupt took effect, and states whether the statement is committed.
                    raise commit.error from commit.error.__cause__
                if commit.epoch is None:
                    raise
                raise StatementInterrupted(f"{_COMMITTED} as epoch {commit.epoch}") from None
        raise AssertionError("an attempt returns or raises")

    def _commit(self, commit: _Commit, operation: Operation, plan: Plan, snapshot: Snapshot, started: float) -> int:
        """Commits a plan's operation, carries out the plan's effect, and returns the epoch.

        Also stores the result in ``commit``, because a KeyboardInterrupt would discard the return value. Raises
        ConcurrentCommit if another statement was committed first.
        """
        try:
            with gc_paused():
                commit.epoch = self._context.metastore.commit(
                    operation,
                    based_on=snapshot,
                    # The owner starts to change the jobs while the projections are still being written.
                    on_append=self._wake if is_awaited(plan) else _sleep_on,
                ).epoch
            fault("statement.after_commit")
            log_commit(plan, operation, commit.epoch)
            self._carry_out(plan, commit.epoch, started)
        except ConcurrentCommit:
            raise
        except Exception as error:
            commit.error = error
            raise
        return commit.epoch

    def _lock(self, statement: ast.Statement, session: SessionState) -> tuple[int | None, tuple[QuiesceLock, ...]]:
        """Stops the readers whose positions a block or a REWIND changes, to keep the preview exact until the commit.
        Returns the epoch of the catalog for which the locks are valid, and the locks. For any other statement, returns
        None and no locks."""
        if not isinstance(statement, ast.UnsafeBlock | ast.RewindSource):
            return None, ()
        snapshot, plan = self._plan(statement, session)
        require_switch(snapshot, statement.span)
        sources = [record for record in map(snapshot.get, plan.affected) if isinstance(record, SourceRecord)]
        running = [source.id for source in sources if is_running(snapshot, source)]
        session.waiting.begin("stopping the readers that the statement moves")
        return snapshot.epoch, lock_sources(self._context, snapshot, running, session.timeout, self._wake)

    def _wake(self) -> None:
        if self.owner is not None:
            self.owner.wake()

    def _carry_out(self, plan: Plan, epoch: int, started: float) -> None:
        """Carries out the plan's effect outside of the warehouse, after the commit.

        Also records the outcome. A refused effect changes nothing, and its outcome contains the error.
        """
        if plan.effect is None:
            return
        try:
            carry_out(plan.effect, actor=user_name(), running=self._context.sessions.running_query)
        except (SqlError, OSError, DeltaError) as error:
            raised = error if isinstance(error, SqlError) else effect_failed(plan.effect, epoch, error)
            # If the outcome cannot be recorded, SHOW UNSAFE OPERATIONS refers to SHOW CHECKPOINT.
            with suppress(OSError, DeltaError):
                self._context.metastore.record_outcome(epoch, f"failed: {raised.message}", _milliseconds_since(started))
            if raised is error:
                raise
            raise raised from error
        self._context.metastore.record_outcome_later(epoch, APPLIED, _milliseconds_since(started))

    def _pass_gate(
        self, snapshot: Snapshot, plan: Plan, session: SessionState, confirmed: set[str], *, in_advance: bool
    ) -> float:
        """Raises SqlError with the preview unless exactly the plan ``plan`` is confirmed. Returns the number of seconds
        that the user took to answer; 0 if this call did not ask the user. ``confirmed`` identifies the plans that the
        user has confirmed during this statement. ``in_advance`` is True if the user has confirmed the statement in
        advance.
        """
        require_switch(snapshot, plan.statement.span)
        question = question_of(snapshot, plan)
        shown = _shown(plan, question.token)
        if (in_advance and question.takes_yes_beforehand) or not question.tokens.isdisjoint(session.confirmed):
            return 0.0
        if not confirmed.isdisjoint(_shown(plan, token) for token in question.tokens):
            return 0.0
        # Both clocks are read, because the monotonic clock stops while the machine sleeps, and the wall clock can be
        # set back.
        was_asked, asked, began = session.ask is not None, now_ms(), time.monotonic()
        if session.ask is not None and session.ask(question):
            confirmed.add(shown)
            return max((now_ms() - asked) / 1000, time.monotonic() - began)
        session.refused[question.token] = plan.statement
        session.shown[question.token] = plan
        raise refusal(question, plan, was_asked=was_asked)


def _longest_pause(attempt: int, seconds: float) -> float:
    """The maximum pause, in seconds, after an attempt that took ``seconds`` and lost to another statement.

    The pause has a random length, so sessions whose commits collided rarely collide again. The maximum becomes shorter
    with each attempt, so later statements do not overtake one statement again and again.
    """
    return min(_PAUSE_SECONDS, seconds) / attempt


def _milliseconds_since(started: float) -> int:
    return int((time.monotonic() - started) * 1000)


def _sleep_on() -> None:
    """Does nothing. It replaces ``wake`` for a commit whose statement does not wait for the owner. The owner finds this
    commit when it next polls the catalog."""


def _set_parameter(session: SessionState, name: str, value: str | None) -> None:
    if value is None:
        session.parameters.pop(name, None)
    else:
        session.parameters[name] = value


def _shown(plan: Plan, token: str) -> str:
    """A text that identifies the plan to which a confirmation applies. The text is the token. For a block, it also
    contains the positions that the preview shows."""
    if not isinstance(plan.statement, ast.UnsafeBlock) or plan.preview is None:
        return token
    return f"{token} {[part.splits for part in plan.preview.parts or (plan.preview,)]}"


def _whole(block: Block, statement: ast.Statement) -> ast.UnsafeBlock:
    return ast.UnsafeBlock(statements=tuple(block.statements), reason=block.reason, span=statement.span)


def _rows(changes: tuple[ResultRow, ...]) -> Table:
    return Table(columns=_CHANGES, rows=tuple((row.object, row.change, row.detail) for row in changes))
