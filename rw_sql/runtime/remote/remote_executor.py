"""Runs the statements of a session without a JVM: passes each statement to the owner through the catalog, and waits for
the answer."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from rw_sql.errors import OWNER_MISSING, SqlError
from rw_sql.metastore.commits import user_name
from rw_sql.metastore.facts import ASKED, DONE, TAKEN, WITHDRAWN, Request
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.plan.checks.literal_secrets import refuse_literal_secrets
from rw_sql.plan.statements.connection.secret import names_backend_alone
from rw_sql.plan.statements.move.block import require_inside
from rw_sql.runtime.control.executor import Executor
from rw_sql.runtime.control.session_state import Block, SessionState
from rw_sql.runtime.jobs.groups import owned_groups, possibly_owned_groups
from rw_sql.runtime.jobs.lease import GONE_SECONDS, resume_command, serve_command, suspended_pid, takeover_command
from rw_sql.runtime.jobs.unfinished import unfinished_backfills
from rw_sql.runtime.remote.request_messages import (
    StatementBody,
    answer_body,
    error_of,
    progress_body,
    statement_body,
    table_of,
    to_json,
)
from rw_sql.runtime.remote.request_server import answer_lost, owner_ended, owner_silent, store_failed
from rw_sql.runtime.spark.interrupts import StatementInterrupted
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.stall_timeout import spoken_seconds
from rw_sql.syntax import statements as ast

if TYPE_CHECKING:
    from collections.abc import Set

    from rw_sql.metastore.facts import BackfillProgress, Lease
    from rw_sql.plan.result.confirmation import Question
    from rw_sql.plan.result.plan import Table
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.remote.request_messages import AnswerBody

_LOOK_SECONDS, _LOOK_SECONDS_IN_STORE = 0.05, 0.5
_NONE: frozenset[str] = frozenset()
_MOST_TOKENS = 100
"""The maximum number of refused statements for which this session remembers the name under which the owner ran them. A
CONFIRM must run under the same name as the statement that it confirms (see :class:`_Names`)."""
_OWNER_SECONDS = 1.0
"""The interval in seconds at which a waiting session checks that the owner still runs."""


class _NoOwnerError(SqlError):
    """Raised if a resource group has no owner. A statement that fails with this error has changed nothing."""


@dataclass(slots=True, kw_only=True)
class _Wait:
    """The wait for the answer to one request. ``suspended_at`` is the time when the waiting session first saw that the
    owner was suspended; None if the owner is not suspended."""

    request: Request
    began: float
    patience: float
    suspended_at: float | None = None


class _Names:
    """The names under which the owner runs the statements of one session. The owner keeps a separate session for each
    name.

    The owner runs requests with the same name one after the other, but the threads of a session run their statements at
    the same time. Therefore, a statement that begins while another statement of the session runs gets another name. The
    owner keeps an open block in its memory under one name, so all statements in the block get this name. The owner also
    keeps a refused statement in its memory, so the CONFIRM with the statement's token gets the same name as the
    statement.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names = [uuid.uuid4().hex]
        self._used: Counter[str] = Counter()
        self._refusing: dict[str, str] = {}
        """Maps the token of each refused statement to the name under which the statement ran."""

    def take(self, *, is_in_block: bool, token: str | None = None) -> str:
        """Takes a name for the next statement. The caller gives the name back with :meth:`release`. ``is_in_block`` is
        true if the session has an open block. ``token`` is the token of a CONFIRM; None for any other statement."""
        with self._lock:
            free = self._names[:1] if is_in_block else [name for name in self._names if not self._used[name]]
            refusing = self._refusing.get(token or "")
            if refusing is not None and refusing in self._names and not is_in_block:
                free = [refusing]
            if not free:
                free = [uuid.uuid4().hex]
                self._names += free
            self._used[free[0]] += 1
            return free[0]

    def release(self, name: str) -> None:
        """Makes the name of an ended statement available to other statements."""
        with self._lock:
            self._used[name] -= 1

    def note_refusal(self, name: str, token: str) -> None:
        """Records that the owner refused a statement with this name, and that this token confirms the statement."""
        with self._lock:
            self._refusing[token] = name
            while len(self._refusing) > _MOST_TOKENS:
                del self._refusing[next(iter(self._refusing))]

    def leave(self, name: str) -> None:
        """Ensures that no further statement uses this name."""
        with self._lock:
            self._names = [other for other in self._names if other != name] or [uuid.uuid4().hex]

    def block_of(self, session: SessionState, name: str) -> Block | None:
        """The session's open block if statements with this name are part of the block; otherwise None."""
        with self._lock:
            return session.block if name == self._names[0] else None

    def note_block(self, session: SessionState, name: str, block: Block | None) -> None:
        """Records the state of the session's block after a statement with this name. ``block`` is None if the owner has
        no open block under this name. A statement that began before the block does not end the block."""
        with self._lock:
            if block is not None:
                self._names = [name, *(other for other in self._names if other != name)]
            if block is not None or name == self._names[0]:
                session.block = block


class RemoteExecutor:
    """Runs the statements of one session. Thread-safe.

    A statement that contains the value of a secret runs in this process, because a request would store the value. Such
    statements are ALTER SECRET, CREATE SECRET with a value, and EXPLAIN of these statements. A statement with the
    literal value of a secret option is refused in this process for the same reason.
    """

    owner = None

    def __init__(self, context: Context) -> None:
        self._context = context
        self._names = _Names()
        self._group = DEFAULT_GROUP
        self._heartbeats: dict[str, tuple[Lease, float]] = {}
        """Maps each resource group to its owner's lease with the newest heartbeat, and to the time on the monotonic
        clock at which this session first read this heartbeat."""
        self._running: set[str] = set()
        """The requests whose answers threads of this session are waiting for."""
        self._left: str | None = None
        """The last request for which this session stopped waiting before it had the answer. The owner may still run
        this request."""

    def run(self, text: str, statement: ast.Statement, session: SessionState) -> Table:
        """Runs one statement and returns its rows.

        An SqlError means that the statement has changed nothing, unless the error says otherwise. Raises SqlError
        OWNER_MISSING if no process runs the jobs.
        """
        shown = statement.statement if isinstance(statement, ast.Explain) else statement
        has_value = isinstance(shown, ast.AlterSecret) or (
            isinstance(shown, ast.CreateSecret) and not names_backend_alone(shown)
        )
        try:
            if has_value and session.block is not None:
                require_inside(shown)
            refuse_literal_secrets(shown)
        except SqlError:
            if session.block is not None:  # COMMIT may run only complete blocks.
                session.block.is_aborted = True
            raise
        if has_value:
            return Executor(self._context, None).run(statement, session)
        token = statement.token if isinstance(statement, ast.Confirm) else None
        name = self._names.take(is_in_block=session.block is not None, token=token)
        try:
            answer = self._ask(text, session, name, ends_block=isinstance(statement, ast.Commit | ast.Rollback))
            while answer.question is not None and session.ask is not None and session.ask(answer.question):
                # If the effects change between the question and the confirmation, the owner asks again.
                answer = self._ask(_confirmation(answer.question), session, name)
            if answer.question is not None:
                self._names.note_refusal(name, answer.question.token)
        finally:
            self._names.release(name)
        if answer.error is not None:
            raise error_of(answer.error)
        return table_of(answer)

    def _ask(self, text: str, session: SessionState, name: str, *, ends_block: bool = False) -> AnswerBody:
        """Sends a statement to each owner in turn until one of the owners accepts the statement. A statement in a block
        goes only to the owner that has the block in its memory."""
        asked: set[str] = set()
        while True:
            is_in_block = self._names.block_of(session, name) is not None
            group = self._owned_group(asked, is_in_block=is_in_block)
            try:
                return self._ask_group(group, text, session, name, ends_block=ends_block)
            except _NoOwnerError:
                asked.add(group)
                if is_in_block or possibly_owned_groups(self._context) <= asked:
                    raise

    def _ask_group(self, group: str, text: str, session: SessionState, name: str, *, ends_block: bool) -> AnswerBody:
        block = self._names.block_of(session, name)
        body = StatementBody(
            text=text,
            parameters=dict(session.parameters),
            block=None if block is None else "aborted" if block.is_aborted else "open",
            can_ask=session.ask is not None,
            user=user_name(),
        )
        request = Request(
            request=uuid.uuid4().hex,
            session=name,
            resource_group=group,
            state=ASKED,
            asked_ms=now_ms(),
            body=to_json(body),
        )
        session.waiting.begin("waiting for the process that runs the jobs")
        is_stored = False
        self._running.add(request.request)
        try:
            self._context.metastore.jobs.requests.add(request)
            is_stored = True
            answer = self._wait(request, session)
        except BaseException as error:
            # The user sees an error, so the owner must not run the statement later.
            if self._is_withdrawn(request, is_stored=is_stored):
                raise
            if ends_block:  # The owner's block ends with the statement, whether it succeeds or not.
                session.block = None
            self._leave(request, session)
            # The confirmation covers one statement, which the owner may still run, so it must not confirm another
            # statement.
            session.parameters.pop("unsafe_confirmation", None)
            if isinstance(error, KeyboardInterrupt):
                raise StatementInterrupted("stopped waiting; the process that runs the jobs continues it") from None
            if isinstance(error, OSError | DeltaError):
                raise store_failed(error) from error
            raise
        finally:
            self._running.discard(request.request)
        # Another thread of the session may have set other parameters since then.
        for key in body.parameters.keys() | answer.parameters.keys():
            if key not in answer.parameters:
                session.parameters.pop(key, None)
            elif answer.parameters[key] != body.parameters.get(key):
                session.parameters[key] = answer.parameters[key]
        has_block = answer.block is not None and not ends_block
        block = Block(reason=None, is_aborted=answer.block == "aborted") if has_block else None
        self._names.note_block(session, name, block)
        return answer

    def _leave(self, request: Request, session: SessionState) -> None:
        """Enables the session to run further statements while the owner may still be running this request.

        The owner runs the requests of one session one after the other. The following requests are therefore sent under
        the name of a new session. The new session loses only the tokens of refused statements, because each request
        contains the session's parameters. An open block is in the owner's memory under the name of the session, so a
        session with an open block keeps its name.
        """
        self._left = request.request
        if self._names.block_of(session, request.session) is None:
            self._names.leave(request.session)

    def _is_withdrawn(self, request: Request, *, is_stored: bool) -> bool:
        """Withdraws a request; returns True if it is certain that no owner will run the request. ``is_stored`` is true
        if the request is certainly in the catalog."""
        try:
            if self._withdraw(request):
                return True
            found = self._context.metastore.jobs.requests.find(request.request)
        except (OSError, DeltaError):
            return False
        return not is_stored if found is None else found.state == WITHDRAWN

    def _wait(self, request: Request, session: SessionState) -> AnswerBody:
        facts, seconds = self._context.metastore.jobs, _LOOK_SECONDS
        if not self._context.warehouse.is_local:
            seconds = _LOOK_SECONDS_IN_STORE
        checked_at, shown = time.monotonic(), ""
        wait = _Wait(request=request, began=checked_at, patience=session.timeout)
        told: dict[str, BackfillProgress] = {}
        jobs: frozenset[str] | None = _NONE  # The statement of another thread may end session.waiting.
        while True:
            found = facts.requests.find(request.request)
            if found is not None and found.state == DONE and found.answer is not None:
                return answer_body(found.answer)
            if found is not None and found.progress is not None and found.progress != shown:
                shown = found.progress
                progress = progress_body(shown)
                session.waiting.begin(progress.what, progress.jobs)
                jobs = None if progress.jobs is None else frozenset(progress.jobs)
            self._tell_progress(session, jobs, told)
            if time.monotonic() - checked_at >= _OWNER_SECONDS:
                checked_at = time.monotonic()
                self._check_owner(wait, found)
            time.sleep(seconds)

    def _check_owner(self, wait: _Wait, found: Request | None) -> None:
        """Raises SqlError if the owner can no longer be expected to respond, for example because its process has
        ended."""
        request = wait.request
        lease = self._context.metastore.jobs.lease(request.resource_group)
        is_owned = lease is not None and lease.group in possibly_owned_groups(self._context)
        is_taken = found is not None and found.state == TAKEN
        if is_taken and found is not None:
            if lease is None or not is_owned or lease.owner != found.taken_by:
                newest = self._context.metastore.jobs.requests.find(request.request)
                if newest is not None and newest.state == DONE:
                    return
                raise owner_ended(found.taken_by)
            self._require_heartbeat(lease, wait)
            return
        if found is None:
            raise answer_lost()
        if is_owned and time.monotonic() - wait.began < wait.patience and suspended_pid(lease) is None:
            return
        if self._withdraw(request):
            raise self._not_taken(lease, wait.patience, request)

    def _require_heartbeat(self, lease: Lease, wait: _Wait) -> None:
        """Raises SqlError if the owner has taken the statement and its processes exist, but no heartbeat was written
        within a limit. For a suspended owner, the limit is the session's ``statement_timeout``. For any other owner,
        the limit is this timeout or GONE_SECONDS, whichever is longer."""
        now = time.monotonic()
        before, since = self._heartbeats.get(lease.group, (None, now))
        if before is None or (before.owner, before.heartbeat_ms) != (lease.owner, lease.heartbeat_ms):
            since = now
            self._heartbeats[lease.group] = (lease, now)
        suspended = suspended_pid(lease)
        if suspended is None:
            wait.suspended_at = None
        elif wait.suspended_at is None:
            wait.suspended_at = now
        # The Python process writes heartbeats while its JVM is suspended, but runs no statement.
        silent = now - (since if wait.suspended_at is None else wait.suspended_at)
        if silent >= (max(wait.patience, GONE_SECONDS) if suspended is None else wait.patience):
            raise owner_silent(lease, suspended, silent, self._context.warehouse.uri)

    def _not_taken(self, lease: Lease | None, patience: float, request: Request | None = None) -> SqlError:
        if lease is not None and (pid := suspended_pid(lease)) is not None:
            ends = takeover_command(lease, self._context.warehouse.uri)
            return SqlError(
                OWNER_MISSING,
                f"process {pid}, which runs the jobs, is suspended: nothing was changed",
                hint=f"{resume_command(lease)} resumes it; {ends} ends it",
            )
        if lease is not None and self._context.has_owner(lease):
            if self._runs_before(request, {self._left}):
                return SqlError(
                    OWNER_MISSING,
                    f"process {lease.owner}, which runs the jobs, still runs the previous statement of this session, "
                    "for which the session stopped waiting: nothing was changed",
                    hint="run the statement again; it waits for at most statement_timeout until the previous one ends",
                )
            if self._runs_before(request, self._running):
                is_in_block = request is not None and statement_body(request.body or "").block is not None
                whole, why = "block", "the statements of a block run one after the other"
                if not is_in_block:
                    whole, why = "session", "a CONFIRM runs after the statements that began before it"
                return SqlError(
                    OWNER_MISSING,
                    f"process {lease.owner}, which runs the jobs, still runs another statement of the {whole}: nothing "
                    "was changed",
                    hint=f"{why}: run the statement again when the other thread has its result",
                )
            return SqlError(
                OWNER_MISSING,
                f"process {lease.owner}, which runs the jobs, did not accept the statement within "
                f"{spoken_seconds(patience)}: nothing was changed",
                hint="run the statement again; a process of an older version, without resource groups, accepts no "
                "statements",
            )
        return self._missing()

    def _runs_before(self, request: Request | None, others: Set[str | None]) -> bool:
        """True if the owner is running one of the requests ``others`` under the name of ``request``, which therefore
        has to wait."""
        found = (self._context.metastore.jobs.requests.find(other) for other in [*others] if other is not None)
        return request is not None and any(
            other is not None and other.session == request.session and other.state == TAKEN for other in found
        )

    def _owned_group(self, without: Set[str] = frozenset(), *, is_in_block: bool = False) -> str:
        """The group whose owner runs the next statement: the group of the previous statement, otherwise the default
        group, otherwise any group. Outside a block, groups that certainly have an owner come first. Groups in
        ``without`` are ignored.

        Raises SqlError if no process can run a statement.
        """
        possible, certain = possibly_owned_groups(self._context), owned_groups(self._context)
        names = [name for name in dict.fromkeys((self._group, DEFAULT_GROUP, *sorted(possible))) if name in possible]
        left = [name for name in names if name not in without]
        if not is_in_block:
            left.sort(key=lambda name: name not in certain)
        if not left:
            raise self._missing()
        group = left[0]
        lease = self._context.metastore.jobs.lease(group)
        if suspended_pid(lease) is not None:
            raise self._not_taken(lease, 0.0)
        self._group = group
        return group

    def _missing(self) -> SqlError:
        return _NoOwnerError(
            OWNER_MISSING,
            "no process runs the jobs of this warehouse, so none can run the statement: nothing was changed",
            hint=serve_command(self._context.warehouse.uri),
        )

    def _withdraw(self, request: Request) -> bool:
        return self._context.metastore.jobs.requests.change(request, replace(request, state=WITHDRAWN))

    def _tell_progress(
        self, session: SessionState, jobs: frozenset[str] | None, told: dict[str, BackfillProgress]
    ) -> None:
        tell = session.on_progress
        if tell is None or jobs == _NONE:
            return
        metastore = self._context.metastore
        for job, progress in unfinished_backfills(metastore, metastore.snapshot()).items():
            if (jobs is None or job in jobs) and told.get(job) != progress:
                told[job] = progress
                tell(progress)


def _confirmation(question: Question) -> str:
    return f"CONFIRM '{question.token}'"
