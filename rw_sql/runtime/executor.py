"""Runs statements: plan, gate, commit, wait until the owner has applied it, answer."""

from __future__ import annotations

import getpass
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rw_sql.errors import INVALID_CONFIRMATION, SqlError
from rw_sql.metastore import ConcurrentCommit
from rw_sql.plan.explain import explain_table
from rw_sql.plan.gate import question_of, refusal, require_switch, token_of
from rw_sql.plan.lower import lower
from rw_sql.plan.parameters import SESSION_PARAMETERS
from rw_sql.plan.plan import ObjectChange, Plan, Table
from rw_sql.runtime.faults import fault
from rw_sql.runtime.flush import flush
from rw_sql.runtime.lease import is_held, now_ms
from rw_sql.runtime.owner import APPLIED, NOT_YET_APPLIED
from rw_sql.runtime.world import World
from rw_sql.syntax import statements as ast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rw_sql.metastore import Snapshot
    from rw_sql.plan.gate import Question
    from rw_sql.runtime.context import Context
    from rw_sql.runtime.owner import Owner

_ATTEMPTS = 20
_LOOK_SECONDS = 0.05
_CHANGES = (("object", "STRING"), ("change", "STRING"), ("detail", "STRING"))
_HOLDS = (
    ast.PauseSource,
    ast.PauseAllSources,
    ast.ResumeSource,
    ast.ResumeAllSources,
    ast.PauseSink,
    ast.ResumeSink,
    ast.UndoOperation,
)
_UNSAFE = (
    ast.AlterSourceUnsafeSet,
    ast.ResetSourceSplits,
    ast.InjectSourceOffsets,
    ast.AlterConnectionOptions,
    ast.AlterSetConnection,
    ast.UndoOperation,
)


@dataclass(slots=True)
class SessionState:
    """What one attached session knows: its parameters, what it refused and showed, and who can be asked.

    ``ask`` is None where nobody can answer.
    """

    parameters: dict[str, str] = field(default_factory=dict)
    refused: dict[str, ast.Statement] = field(default_factory=dict)
    shown: dict[str, Plan] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)
    ask: Callable[[Question], bool] | None = None

    def parameter(self, name: str) -> str:
        """A session parameter's value."""
        return self.parameters.get(name, SESSION_PARAMETERS[name].default)

    @property
    def timeout(self) -> float:
        """``statement_timeout`` in seconds."""
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
        match statement:
            case ast.Explain(statement=inner):
                _, plan = self._plan(inner, session)
                return explain_table(plan)
            case ast.Flush():
                discover_now = self.owner.discover_now if self.owner is not None else None
                return _rows(flush(self._context, session.timeout, discover_now))
            case ast.Confirm():
                return self._confirm(statement, session)
            case _:
                return self._run(statement, session)

    def _plan(self, statement: ast.Statement, session: SessionState) -> tuple[Snapshot, Plan]:
        snapshot = self._context.metastore.snapshot()
        return snapshot, World(self._context, snapshot).run(
            lower(statement, snapshot, query_dialect=session.parameter("query_dialect"))
        )

    def _plan_as(self, shown: Plan | None, agreed: Collection[str]) -> tuple[Snapshot, Plan] | None:
        """The plan as it was shown, while nothing that it rests on has changed: TO LATEST would come to another by now.

        Only of an INJECT, whose source is paused: of any other the positions move on.
        """
        if shown is None or not shown.fingerprint:
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
        said_yes = isinstance(statement, _UNSAFE) and session.parameters.pop("unsafe_confirmation", "no") == "yes"
        agreed = set(session.confirmed)
        for attempt in range(1, _ATTEMPTS + 1):
            snapshot, plan = self._plan_as(shown, agreed) or self._plan(statement, session)
            if plan.table is not None:
                return plan.table
            if plan.session is not None:
                _set_parameter(session, *plan.session)
            if plan.operation is None:
                return _rows(plan.changes)
            fault("statement.planned")
            if plan.is_unsafe:
                self._pass_gate(snapshot, plan, session, agreed, said_yes=said_yes)
            operation = replace(plan.operation, actor=plan.operation.actor or _user())
            self._context.sessions.require_alive()
            fault("statement.before_commit")
            try:
                committed = self._context.metastore.commit(operation, based_on=snapshot)
            except ConcurrentCommit:
                if attempt == _ATTEMPTS:
                    raise
                continue
            fault("statement.after_commit")
            return _rows((*plan.changes, *self._finish(plan, committed.epoch, session, started)))
        raise AssertionError("the last attempt returns or raises")

    def _pass_gate(
        self, snapshot: Snapshot, plan: Plan, session: SessionState, agreed: set[str], *, said_yes: bool
    ) -> None:
        """Returns once somebody said yes to this very plan. Raises SqlError with the preview otherwise."""
        require_switch(snapshot, plan)
        question = question_of(snapshot, plan)
        if (said_yes and not plan.unallowed) or question.token in agreed:
            return
        was_asked = session.ask is not None
        if session.ask is not None and session.ask(question):
            agreed.add(question.token)
            return
        session.refused[question.token] = plan.statement
        session.shown[question.token] = plan
        raise refusal(question, plan, was_asked=was_asked)

    def _finish(self, plan: Plan, epoch: int, session: SessionState, started: float) -> tuple[ObjectChange, ...]:
        """Waits for the owner where jobs are to change, and says what came of it."""
        jobs = frozenset(step.subject for step in plan.steps if not step.is_catalog)
        notices: list[ObjectChange] = []
        outcome = APPLIED
        # A hold counts once the owner knows of it, also where nothing runs that it stops.
        is_awaited = bool(jobs) or isinstance(plan.statement, _HOLDS)
        if is_awaited and not self.wait_applied(epoch, session.timeout, jobs):
            outcome = NOT_YET_APPLIED if jobs else APPLIED
        if outcome == NOT_YET_APPLIED:
            notices.append(ObjectChange(object=plan.changes[0].object, change="NOTICE", detail=outcome))
        elif jobs:
            notices += self._stalls(plan)
        fault("statement.applied")
        if jobs or plan.is_unsafe:
            duration = int((time.monotonic() - started) * 1000)
            self._context.metastore.record_outcome(epoch, outcome, duration)
            if outcome == NOT_YET_APPLIED and self._is_applied(epoch):
                # The owner came to it in between, and did not see this outcome yet.
                self._context.metastore.record_outcome(epoch, APPLIED, duration)
        fault("statement.told")
        return tuple(notices)

    def _is_applied(self, epoch: int) -> bool:
        lease = self._context.metastore.runtime.lease()
        return lease is not None and lease.applied_epoch >= epoch

    def _stalls(self, plan: Plan) -> list[ObjectChange]:
        wanted = {step.subject for step in plan.steps if not step.is_catalog and step.action != "StopJob"}
        statuses = self._context.metastore.runtime.job_statuses()
        return [
            ObjectChange(object=job, change="NOTICE", detail=f"STALLED: {statuses[job].reason}")
            for job in sorted(wanted)
            if job in statuses and statuses[job].state == "STALLED"
        ]

    def wait_applied(self, epoch: int, seconds: float, jobs: Collection[str] | None = None) -> bool:
        """Waits until the jobs' owner has applied an epoch; False at once where nobody owns, or after a while.

        Where the owner is in this process only ``jobs`` are waited for (all where None).
        """
        owner = self.owner
        deadline = time.monotonic() + seconds
        if owner is not None:
            owner.wake()
        while True:
            if owner is not None and owner.is_owner:
                if owner.wait_applied(epoch, max(0.0, deadline - time.monotonic()), jobs):
                    return True
            else:
                lease = self._context.metastore.runtime.lease()
                if lease is not None and lease.applied_epoch >= epoch:
                    return True
                self._context.sessions.require_alive(f"the statement is committed as epoch {epoch}")
                is_local = self._context.warehouse.is_local
                if owner is None and not is_held(lease, is_local=is_local, now_ms=now_ms()):
                    return False
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_SECONDS)


def _set_parameter(session: SessionState, name: str, value: str | None) -> None:
    if value is None:
        session.parameters.pop(name, None)
    else:
        session.parameters[name] = value


def _rows(changes: tuple[ObjectChange, ...]) -> Table:
    return Table(columns=_CHANGES, rows=tuple((row.object, row.change, row.detail) for row in changes))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
