"""Runs statements: plan, gate, commit, wait until the owner has applied it, answer."""

from __future__ import annotations

import getpass
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.errors import BLOCK_ABORTED, INVALID_CONFIRMATION, NOT_SUPPORTED, SqlError
from rw_sql.metastore import ConcurrentCommit
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.job_ids import view_job
from rw_sql.model.names import find_table, find_view
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.model.source_readers import is_running
from rw_sql.plan.lower import lower, lower_explained
from rw_sql.plan.result.confirmation import question_of, refusal, require_switch, token_of
from rw_sql.plan.result.explain import explain_table
from rw_sql.plan.result.plan import ObjectChange, Plan, Table
from rw_sql.plan.statements.move.block import SHOWN_INSIDE, lower_inside, require_inside
from rw_sql.plan.statements.view.backfill_plan import RATE_LIMIT, with_rate_limit
from rw_sql.runtime.control.checkpoint_requests import carry_out
from rw_sql.runtime.control.inspector import Inspector
from rw_sql.runtime.control.outcomes import APPLIED, NOT_YET_APPLIED
from rw_sql.runtime.control.quiesce import release_hold, still_hold, take_hold
from rw_sql.runtime.control.statement_kinds import HOLDS, may_be_unsafe
from rw_sql.runtime.jobs.statuses import owner_marks
from rw_sql.runtime.observe.flush import flush
from rw_sql.runtime.observe.wait import refreshes_without_end, wait_until_made
from rw_sql.runtime.spark.interrupts import StatementInterrupted, shielded
from rw_sql.runtime.support.event_log import log_event
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.gc_pause import collector_resting
from rw_sql.runtime.support.stall_timeout import StallTimeout
from rw_sql.syntax import statements as ast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import BackfillProgress, Hold
    from rw_sql.metastore.records import Operation
    from rw_sql.plan.requests.catalog import Asking
    from rw_sql.plan.result.confirmation import Question
    from rw_sql.runtime.control.owner import Owner
    from rw_sql.runtime.jobs.context import Context

_ATTEMPTS = 20
_LOOK_SECONDS = 0.05
_COMMITTED = "waiting for the jobs ended, the statement stays done: it is committed"
_MARK_SECONDS = 1.0
_CHANGES = (("object", "STRING"), ("change", "STRING"), ("detail", "STRING"))


@dataclass(slots=True)
class Block:
    """An open BEGIN UNSAFE block: the statements so far. After an error nothing but ROLLBACK ends it."""

    reason: str | None
    statements: list[ast.Statement] = field(default_factory=list)
    is_aborted: bool = False


@dataclass(slots=True)
class SessionState:
    """What one attached session knows: its parameters, what it refused and showed, who can be asked, and its block.

    ``ask`` is None where nobody can answer. ``on_progress`` is told how far what is being made has come, while a
    statement waits for it.
    """

    parameters: dict[str, str] = field(default_factory=dict)
    refused: dict[str, ast.Statement] = field(default_factory=dict)
    shown: dict[str, Plan] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)
    ask: Callable[[Question], bool] | None = None
    block: Block | None = None
    on_progress: Callable[[BackfillProgress], None] | None = None

    def parameter(self, name: str) -> str:
        """A session parameter's value."""
        return self.parameters.get(name, SESSION_PARAMETERS[name].default)

    @property
    def timeout(self) -> float:
        """``statement_timeout`` in seconds: the longest wait without progress."""
        return int(self.parameter("statement_timeout").removesuffix("ms")) / 1000


class Executor:
    """Statements of one attached warehouse, from any thread. ``owner`` is this process's, once it is to run jobs."""

    def __init__(self, context: Context, owner: Owner | None) -> None:
        self._context = context
        self.owner = owner

    def run(self, statement: ast.Statement, session: SessionState) -> Table:
        """Runs one statement and returns its rows.

        Raises SqlError, and then nothing was changed, unless the error itself says that the statement is committed.
        """
        self._context.sessions.require_alive()
        if session.block is not None:
            return self._run_inside(statement, session, session.block)
        match statement:
            case ast.BeginUnsafe(reason=reason):
                require_switch(self._context.metastore.snapshot(), statement.span)
                session.block = Block(reason=reason)
                detail = "statements are collected until COMMIT; ROLLBACK forgets them"
                return _rows((ObjectChange(object="", change="BEGIN", detail=detail),))
            case ast.Commit() | ast.Rollback():
                return _rows((ObjectChange(object="", change="NOTICE", detail="there is no block in progress"),))
            case ast.Explain(statement=inner):
                _, plan = self._plan(inner, session, lower_explained)
                return explain_table(plan)
            case ast.Flush():
                discover_now = self.owner.discover_now if self.owner is not None else None
                return _rows(flush(self._context, session.timeout, discover_now))
            case ast.Wait():
                return _rows(self._wait(statement, session))
            case ast.Confirm():
                return self._confirm(statement, session)
            case _:
                return self._run(statement, session)

    def _wait(self, statement: ast.Wait, session: SessionState) -> tuple[ObjectChange, ...]:
        """WAIT: until the views that are being made and the refreshes of tables have come to an end; or one of them."""
        jobs = None
        snapshot = self._context.metastore.snapshot()
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
        notices = wait_until_made(self._context, jobs, session.timeout, session.on_progress, gives_up=True)
        notices += refreshes_without_end(snapshot, self._context.metastore.snapshot(), jobs)
        return notices or (ObjectChange(object="", change="WAITED", detail="nothing is being made"),)

    def _run_inside(self, statement: ast.Statement, session: SessionState, block: Block) -> Table:
        """One statement inside of a block. An error aborts the block."""
        if isinstance(statement, ast.Rollback):
            session.block = None
            return _rows((ObjectChange(object="", change="ROLLBACK", detail="nothing was changed"),))
        if block.is_aborted:
            ends = isinstance(statement, ast.Commit)
            if ends:
                session.block = None
            raise SqlError(
                BLOCK_ABORTED,
                "the block was aborted by an error: nothing of it was done"
                if ends
                else "the block is aborted: statements are ignored until ROLLBACK",
                span=statement.span,
                hint="BEGIN UNSAFE begins another one" if ends else "ROLLBACK",
            )
        if isinstance(statement, ast.Commit):
            # Whatever comes of it, the block is over; a refusal's token stands for it.
            session.block = None
            return self._run(_whole(block, statement), session)
        try:
            return self._collect(statement, session, block)
        except BaseException:
            # Whatever broke it off, Ctrl-C included: COMMIT must not carry out a block with a statement missing.
            block.is_aborted = True
            raise

    def _collect(self, statement: ast.Statement, session: SessionState, block: Block) -> Table:
        """Checks a statement on what those before it come to, and keeps it for COMMIT. What only shows is answered."""
        match statement:
            case ast.BeginUnsafe():
                detail = "there is a block in progress already"
                return _rows((ObjectChange(object="", change="NOTICE", detail=detail),))
            case ast.Explain(statement=ast.Commit()):
                _, plan = self._plan(_whole(block, statement), session)
                return explain_table(plan)
            case ast.SetParameter():
                return self._run(statement, session)
        shown = statement.statement if isinstance(statement, ast.Explain) else statement
        is_shown = isinstance(shown, SHOWN_INSIDE) or shown is not statement
        if not isinstance(shown, SHOWN_INSIDE):
            require_inside(shown)
        snapshot = self._context.metastore.snapshot()
        dialect = session.parameter("query_dialect")
        plan = Inspector(self._context, snapshot).run(
            lower_inside(tuple(block.statements), shown, snapshot, partial(lower, query_dialect=dialect))
        )
        if is_shown:
            return explain_table(plan) if plan.table is None or shown is not statement else plan.table
        block.statements.append(statement)
        answer = ObjectChange(object="", change="NOTICE", detail="collected: it is done at COMMIT")
        return _rows((*plan.changes, answer))

    def _plan(
        self, statement: ast.Statement, session: SessionState, lower_as: Callable[..., Asking[Plan]] = lower
    ) -> tuple[Snapshot, Plan]:
        if isinstance(statement, ast.CreateMaterializedView) and not statement.or_replace:
            statement = with_rate_limit(statement, session.parameter(RATE_LIMIT))
        snapshot = self._context.metastore.snapshot()
        asking = lower_as(
            statement,
            snapshot,
            query_dialect=session.parameter("query_dialect"),
            shares_sources=session.parameter("streaming_use_shared_source") == "true",
        )
        with collector_resting():
            plan = Inspector(self._context, snapshot).run(asking)
        return snapshot, plan

    def _plan_as(self, shown: Plan | None, agreed: Collection[str]) -> tuple[Snapshot, Plan] | None:
        """The plan as it was shown, while nothing that it rests on has changed: TO LATEST would come to another by now.

        Only of an INJECT, whose source is paused, or whose checkpoint nobody writes: of any other the positions move
        on, and a plan may hold numbers of the catalog it was made at.
        """
        if shown is None or not isinstance(shown.statement, ast.InjectSourceOffsets | ast.InjectCheckpointOffsets):
            return None
        snapshot = self._context.metastore.snapshot()
        return (snapshot, shown) if token_of(snapshot, shown) in agreed else None

    def _confirm(self, statement: ast.Confirm, session: SessionState) -> Table:
        refused = session.refused.get(statement.token)
        if refused is None:
            raise SqlError(
                INVALID_CONFIRMATION,
                f"token '{statement.token}' belongs to no refused statement of this session",
                span=statement.token_span,
                hint="run the statement again: its refusal gives the token",
            )
        session.confirmed.add(statement.token)
        try:
            return self._run(refused, session, session.shown.get(statement.token))
        finally:
            session.confirmed.discard(statement.token)
            session.refused.pop(statement.token, None)
            session.shown.pop(statement.token, None)

    def _run(self, statement: ast.Statement, session: SessionState, shown: Plan | None = None) -> Table:
        """Runs a statement; ``shown`` is its plan as it was shown to whoever confirmed it."""
        started = time.monotonic()
        said_yes = may_be_unsafe(statement) and session.parameters.pop("unsafe_confirmation", "no") == "yes"
        agreed: set[str] = set()
        for attempt in range(1, _ATTEMPTS + 1):
            held_at, holds = self._hold(statement, session)
            try:
                snapshot, plan = self._plan_as(shown, session.confirmed) or self._plan(statement, session)
                if held_at not in (None, snapshot.epoch):
                    raise ConcurrentCommit(snapshot.epoch, held_at or 0)
                if plan.table is not None:
                    return plan.table
                if plan.session is not None:
                    _set_parameter(session, *plan.session)
                if plan.operation is None:
                    return _rows(plan.changes)
                fault("statement.planned")
                if plan.is_unsafe:
                    self._pass_gate(snapshot, plan, session, agreed, said_yes=said_yes)
                    if not still_hold(self._context, snapshot, holds):
                        raise ConcurrentCommit(snapshot.epoch, snapshot.epoch)
                operation = replace(plan.operation, actor=plan.operation.actor or _user())
                self._context.sessions.require_alive()
                fault("statement.before_commit")
                with collector_resting(), shielded():
                    committed = self._context.metastore.commit(
                        operation,
                        based_on=snapshot,
                        # The jobs change while the catalog's projections are written.
                        on_append=self._wake if _is_awaited(plan) else _sleep_on,
                    )
            except ConcurrentCommit:
                if attempt == _ATTEMPTS:
                    raise
                continue
            finally:
                release_hold(self._context, holds, self._wake)
            fault("statement.after_commit")
            _log_commit(plan, operation, committed.epoch)
            try:
                with shielded():
                    self._carry_out(plan, committed.epoch, started)
                return _rows((*plan.changes, *self._finish(plan, committed.epoch, session, started)))
            except KeyboardInterrupt:
                raise StatementInterrupted(f"{_COMMITTED} as epoch {committed.epoch}") from None
        raise AssertionError("the last attempt returns or raises")

    def _hold(self, statement: ast.Statement, session: SessionState) -> tuple[int | None, tuple[Hold, ...]]:
        """Stops the readers that a block or a REWIND moves: what its preview says of them then holds at the commit.

        Returns the epoch that this is for, with the holds; None for any other statement.
        """
        if not isinstance(statement, ast.UnsafeBlock | ast.RewindSource):
            return None, ()
        snapshot, plan = self._plan(statement, session)
        require_switch(snapshot, statement.span)
        sources = [record for record in map(snapshot.get, plan.affected) if isinstance(record, SourceRecord)]
        running = [source.id for source in sources if is_running(snapshot, source)]
        return snapshot.epoch, take_hold(self._context, snapshot, running, session.timeout, self._wake)

    def _wake(self) -> None:
        if self.owner is not None:
            self.owner.wake()

    def _carry_out(self, plan: Plan, epoch: int, started: float) -> None:
        """What the plan does outside of the catalog. Where that fails the operation says so, and changed nothing."""
        if plan.effect is None:
            return
        try:
            carry_out(plan.effect, actor=_user(), running=self._context.sessions.running_query)
        except SqlError as error:
            duration = int((time.monotonic() - started) * 1000)
            self._context.metastore.record_outcome(epoch, f"failed: {error.message}", duration)
            raise

    def _pass_gate(
        self, snapshot: Snapshot, plan: Plan, session: SessionState, agreed: set[str], *, said_yes: bool
    ) -> None:
        """Returns once somebody said yes to this very plan. Raises SqlError with the preview otherwise."""
        require_switch(snapshot, plan.statement.span)
        question = question_of(snapshot, plan)
        shown = _shown(plan, question.token)
        if (said_yes and question.takes_yes_beforehand) or question.token in session.confirmed or shown in agreed:
            return
        was_asked = session.ask is not None
        if session.ask is not None and session.ask(question):
            agreed.add(shown)
            return
        session.refused[question.token] = plan.statement
        session.shown[question.token] = plan
        raise refusal(question, plan, was_asked=was_asked)

    def _finish(self, plan: Plan, epoch: int, session: SessionState, started: float) -> tuple[ObjectChange, ...]:
        """Waits for the owner where jobs are to change, and says what came of it."""
        jobs = frozenset(step.subject for step in plan.steps if not step.is_catalog)
        notices: list[ObjectChange] = []
        outcome = APPLIED
        if _is_awaited(plan) and not self.wait_applied(epoch, session.timeout, jobs):
            outcome = NOT_YET_APPLIED if jobs else APPLIED
        if outcome == NOT_YET_APPLIED:
            notices.append(
                ObjectChange(object=plan.changes[0].object if plan.changes else "", change="NOTICE", detail=outcome)
            )
        elif jobs:
            notices += self._stalls(plan)
            if isinstance(plan.statement, ast.CreateMaterializedView) and not notices:
                notices += self._wait_made(plan, session)
        fault("statement.applied")
        duration = int((time.monotonic() - started) * 1000)
        log_event("finished", epoch=epoch, outcome=outcome, duration_ms=duration)
        if jobs or plan.is_unsafe:
            self._tell_outcome(epoch, outcome, duration)
        fault("statement.told")
        return tuple(notices)

    def _tell_outcome(self, epoch: int, outcome: str, duration_ms: int) -> None:
        metastore = self._context.metastore
        if outcome != NOT_YET_APPLIED:
            # Nothing more comes of it: the answer need not wait until that is written.
            metastore.record_outcome_later(epoch, outcome, duration_ms)
            return
        metastore.record_outcome(epoch, outcome, duration_ms)
        if self._is_applied(epoch):
            # The owner came to it in between, and did not see this outcome yet.
            metastore.record_outcome(epoch, APPLIED, duration_ms)

    def _wait_made(self, plan: Plan, session: SessionState) -> tuple[ObjectChange, ...]:
        """Waits until a new view has what was there before it, unless that goes on in the background."""
        seconds = 0.0 if session.parameter("background_ddl") == "true" else session.timeout
        jobs = [view_job(id_) for id_ in plan.affected]
        return wait_until_made(self._context, jobs, seconds, session.on_progress)

    def _is_applied(self, epoch: int) -> bool:
        lease = self._context.metastore.runtime.lease()
        return lease is not None and lease.applied_epoch >= epoch

    def _stalls(self, plan: Plan) -> list[ObjectChange]:
        wanted = {step.subject for step in plan.steps if not step.is_catalog and step.action != "StopJob"}
        if not wanted:
            return []  # what is said of jobs is waited for until it is written
        statuses = self._context.metastore.runtime.job_statuses()
        return [
            ObjectChange(object=job, change="NOTICE", detail=f"STALLED: {statuses[job].reason}")
            for job in sorted(wanted)
            if job in statuses and statuses[job].state == "STALLED"
        ]

    def wait_applied(self, epoch: int, seconds: float, jobs: Collection[str] | None = None) -> bool:
        """Waits until the jobs' owner has applied an epoch; False at once where nobody owns.

        False too once nothing has moved for so many seconds: neither the jobs nor what the owner has applied; while
        nothing but its heart beats, after ten times as long.

        Where the owner is in this process only ``jobs`` are waited for (all where None).
        """
        owner, limit, awaited = self.owner, StallTimeout(seconds), frozenset(jobs or ())
        if owner is not None:
            owner.wake()
        while True:
            if owner is not None and owner.is_owner:
                if owner.wait_applied(epoch, min(limit.left, _MARK_SECONDS), jobs):
                    return True
            elif self._is_applied(epoch):
                return True
            else:
                self._context.sessions.require_alive(f"the statement is committed as epoch {epoch}")
                if owner is None and not self._context.has_owner():
                    return False
            limit.note(*self._marks(awaited))
            if limit.is_over:
                return False
            if owner is None or not owner.is_owner:
                time.sleep(_LOOK_SECONDS)

    def _marks(self, jobs: Collection[str]) -> tuple[dict[str, object], dict[str, object]]:
        """What shows that the owner is on its way with these jobs."""
        marks, signs = owner_marks(self._context, jobs)
        return {**marks, "what the owner has applied": self._context.applied.left(jobs)}, signs


def _is_awaited(plan: Plan) -> bool:
    """Whether the statement waits for the owner: a hold counts once the owner knows of it, also where nothing runs that
    it stops."""
    return isinstance(plan.statement, HOLDS) or any(not step.is_catalog for step in plan.steps)


def _sleep_on() -> None:
    """The owner finds out by itself, soon enough where nobody waits for it."""


def _set_parameter(session: SessionState, name: str, value: str | None) -> None:
    if value is None:
        session.parameters.pop(name, None)
    else:
        session.parameters[name] = value


def _shown(plan: Plan, token: str) -> str:
    """What a yes to a plan covers: of a block, the very positions that were shown, from where its readers stand."""
    if not isinstance(plan.statement, ast.UnsafeBlock) or plan.preview is None:
        return token
    return f"{token} {[part.splits for part in plan.preview.parts or (plan.preview,)]}"


def _log_commit(plan: Plan, operation: Operation, epoch: int) -> None:
    log_event(
        "committed",
        epoch=epoch,
        kind=operation.kind,
        objects=", ".join(operation.objects),
        actor=operation.actor,
        unsafe=operation.is_unsafe,
        reason=operation.reason,
    )
    for step in plan.steps:
        log_event("step", epoch=epoch, action=step.action, subject=step.subject, detail=step.detail or None)


def _whole(block: Block, statement: ast.Statement) -> ast.UnsafeBlock:
    return ast.UnsafeBlock(statements=tuple(block.statements), reason=block.reason, span=statement.span)


def _rows(changes: tuple[ObjectChange, ...]) -> Table:
    return Table(columns=_CHANGES, rows=tuple((row.object, row.change, row.detail) for row in changes))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
