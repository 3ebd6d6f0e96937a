"""Runs the statements that sessions without a JVM pass to the owner through the catalog, and stores their answers.

A request runs at most once, because the owner first marks the request as taken by compare-and-set. If a session was
killed before an owner took its request, an owner may still run the request, but only until CLOCKS_SECONDS after the
session's ``statement_timeout`` has expired. Requests of one session run one after the other. Requests of different
sessions run at the same time.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from deltalake.exceptions import DeltaError

from rw_sql.errors import BLOCK_ABORTED, OWNER_MISSING, SqlError
from rw_sql.metastore.facts import ASKED, DONE, TAKEN
from rw_sql.plan.result.confirmation import UnconfirmedError
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.jobs.lease import resume_command, takeover_command
from rw_sql.runtime.remote.request_messages import (
    AnswerBody,
    ProgressBody,
    StatementBody,
    error_body,
    rows_body,
    statement_body,
    to_json,
)
from rw_sql.runtime.support.background import run_in_background
from rw_sql.runtime.support.failure_log import FailureLog
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.processes import now_ms, this_machine
from rw_sql.runtime.support.stall_timeout import spoken_seconds
from rw_sql.syntax.parsing.script import parse_statement

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.metastore.facts import Lease, Request
    from rw_sql.plan.result.confirmation import Question
    from rw_sql.plan.result.plan import Table
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.syntax.statements import Statement

logger = logging.getLogger(__name__)

_LOOK_SECONDS, _LOOK_SECONDS_IN_STORE = 0.2, 1.0
"""The intervals in seconds at which the owner checks for requests: on a local path, and in an object store. In an
object store, each check is a request to the store."""

_PROGRESS_SECONDS = 1.0
_STORE_AGAIN_SECONDS = 1.0
"""The time in seconds after which the owner tries again to store an answer."""

CLOCKS_SECONDS = 600.0
"""The maximum difference in seconds between the clocks of a session and of the owner. If the clocks differ by more, the
owner may refuse a request as abandoned although its session still waits."""

_TIDY_SECONDS = 60.0
"""The interval in seconds at which the owner removes the text of answered statements from the files of the requests
table."""

_MOST_SESSIONS = 200
"""The maximum number of sessions whose state is kept. If there are more, the owner first discards sessions without an
open block and without a statement to confirm. Among these, the owner first discards the sessions that have been idle
longest."""

_COMMITTED_HINT = "SELECT * FROM rw_catalog.rw_operations ORDER BY epoch DESC LIMIT 5 shows what is committed"


@dataclass(slots=True)
class _Session:
    """The owner's state of one session that passes its statements, and the running request of this session."""

    state: SessionState = field(default_factory=SessionState)
    running: Request | None = None
    told: str = ""
    told_at: float = 0.0
    used_at: float = 0.0

    @property
    def has_state(self) -> bool:
        """True if a later statement of the session may need the state that is stored here: the session has an open
        block, or its user may still confirm a refused statement."""
        return self.state.block is not None or bool(self.state.refused)


class RequestServer:
    """Runs requests while this process is the owner. ``run`` is a function that runs one statement in a session."""

    def __init__(self, context: Context, run: Callable[[Statement, SessionState], Table]) -> None:
        self._context = context
        self._run = run
        self._sessions: dict[str, _Session] = {}
        self._stopping = threading.Event()
        self._tidied_at = time.monotonic()
        self._failures = FailureLog()
        self._thread = threading.Thread(target=self._loop, name="rw_sql-requests", daemon=True)

    def start(self) -> None:
        """Starts checking for requests."""
        self._thread.start()

    def stop(self) -> None:
        """Accepts no further requests. Running statements continue until they are complete."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _loop(self) -> None:
        seconds = _LOOK_SECONDS if self._context.warehouse.is_local else _LOOK_SECONDS_IN_STORE
        while not self._stopping.wait(seconds):
            if not self._context.owning.is_set():
                continue
            try:
                self.look()
                if time.monotonic() - self._tidied_at >= _TIDY_SECONDS:
                    self._tidied_at = time.monotonic()
                    # The upkeep runs in the background, because it sends hundreds of requests to an object store.
                    run_in_background(self._tidy, "requests-upkeep")
            except (SqlError, OSError, DeltaError) as error:
                if not self._context.explains(error) and self._failures.failed():
                    logger.warning("requests of other sessions cannot be read: %s", error)
            except Exception as error:  # catches every error, because all sessions wait for this thread
                if not self._context.explains(error) and self._failures.failed():
                    logger.exception("requests of other sessions cannot be read")
            else:
                self._failures.ended()

    def _tidy(self) -> None:
        try:
            self._context.metastore.jobs.requests.tidy()
        except (OSError, DeltaError) as error:
            if not self._context.explains(error):
                logger.warning("the texts of answered statements are not removed yet: %s", error)

    def look(self) -> None:
        """Takes new requests, and stores the progress of running requests."""
        found = self._context.metastore.jobs.requests.unanswered(self._context.group)
        for request in found:
            session = self._sessions.setdefault(request.session, _Session())
            if session.running is not None and session.running.request == request.request:
                self._tell_progress(session)
                continue
            if request.state != ASKED:
                self._end_abandoned(request)
                continue
            if session.running is not None:
                continue
            if (late := _lateness(request)) > CLOCKS_SECONDS:
                done = replace(request, state=DONE, answer=to_json(_error_answer(request, _too_late(late))))
                self._context.metastore.jobs.requests.change(request, done)
                continue
            taken = replace(request, state=TAKEN, taken_by=self._context.owner)
            if self._context.metastore.jobs.requests.change(request, taken):
                fault("request.taken")
                session.running, session.used_at = taken, time.monotonic()
                run_in_background(partial(self._answer, session, taken), "request")
        self._forget_sessions()

    def _end_abandoned(self, request: Request) -> None:
        """Answers a request that an earlier owner had taken but not answered when its process ended. The effects of the
        statement, if any, are in the catalog.

        The session keeps its parameters. The session's block was in the memory of the ended process, so the block is
        aborted.
        """
        answer = _error_answer(request, owner_ended(request.taken_by))
        done = replace(request, state=DONE, answer=to_json(answer))
        self._context.metastore.jobs.requests.change(request, done)

    def _answer(self, session: _Session, request: Request) -> None:
        try:
            try:
                answer = to_json(self._answer_of(session.state, statement_body(request.body or "")))
            except Exception as error:  # noqa: BLE001 - any error of the request, or of writing its rows as JSON
                answer = to_json(_error_answer(request, error))
            fault("request.before_answer")
            self._store(request, replace(request, state=DONE, answer=answer, progress=None))
        finally:
            session.running, session.told = None, ""

    def _store(self, request: Request, done: Request) -> None:
        """Stores an answer. Retries until this server stops, because the statement has already run and must not run
        again."""
        failures = FailureLog()
        while True:
            try:
                self._context.metastore.jobs.requests.change(request, done)
            except (OSError, DeltaError) as error:
                if not self._context.explains(error) and failures.failed():
                    logger.warning("the answer to a statement of another session cannot be stored: %s", error)
                if self._stopping.wait(_STORE_AGAIN_SECONDS):
                    return
            else:
                return

    def _answer_of(self, state: SessionState, body: StatementBody) -> AnswerBody:
        questions: list[Question] = []

        def ask(question: Question) -> bool:
            """Always refuses the confirmation, because the session's own process asks its user, and then confirms the
            statement with the token."""
            questions.append(question)
            return False

        state.ask = ask if body.can_ask else None
        state.user = body.user
        state.parameters.clear()
        state.parameters.update(body.parameters)
        table, problem = None, None
        try:
            _agree_on_block(state, body)
            table = self._run(parse_statement(body.text), state)
        except Exception as error:  # noqa: BLE001 - the session that waits must get every error
            problem = error_body(error)
            # A session needs the token of its refused statement even if the session cannot ask its user.
            if isinstance(error, UnconfirmedError):
                questions.append(error.question)
        finally:
            state.waiting.end()
        return AnswerBody(
            parameters=dict(state.parameters),
            block=None if state.block is None else "aborted" if state.block.is_aborted else "open",
            columns=() if table is None else table.columns,
            rows=() if table is None else rows_body(table),
            error=problem,
            question=questions[-1] if questions and problem is not None else None,
            answered_ms=now_ms(),
        )

    def _tell_progress(self, session: _Session) -> None:
        waiting, now, request = session.state.waiting, time.monotonic(), session.running
        jobs = waiting.jobs
        progress = to_json(ProgressBody(what=waiting.what, jobs=None if jobs is None else tuple(sorted(jobs))))
        if request is None or progress == session.told or now - session.told_at < _PROGRESS_SECONDS:
            return
        session.told, session.told_at = progress, now
        self._context.metastore.jobs.requests.change(request, replace(request, progress=progress))

    def _forget_sessions(self) -> None:
        excess = len(self._sessions) - _MOST_SESSIONS
        if excess <= 0:
            return
        idle = [name for name, session in self._sessions.items() if session.running is None]
        idle.sort(key=lambda name: (self._sessions[name].has_state, self._sessions[name].used_at))
        plain = sum(1 for name in idle if not self._sessions[name].has_state)
        for name in idle[: max(excess, min(plain, len(idle) // 2))]:
            del self._sessions[name]


def _lateness(request: Request) -> float:
    """The number of seconds that have passed since the session of a request stopped waiting for the answer. The number
    is negative while the session still waits. The clocks of the session and of this process determine the number.

    A running session withdraws its request when it stops waiting. If the session was killed, the request remains until
    an owner reads it, perhaps a week later, when no user expects the statement any more.
    """
    waits = SessionState()
    try:
        waits.parameters.update(statement_body(request.body or "").parameters)
        patience = waits.timeout
    except (msgspec.MsgspecError, ValueError):  # Another version of rw_sql wrote the request.
        patience = SessionState().timeout
    return (now_ms() - request.asked_ms) / 1000 - patience


def _too_late(late: float) -> SqlError:
    return SqlError(
        OWNER_MISSING,
        f"no process accepted the statement in time: its session stopped waiting {spoken_seconds(late)} ago, and "
        "nothing was changed",
        hint="run the statement again; if its session was still waiting, set the clocks of the two machines: they "
        "differ by at least that time",
    )


def owner_ended(name: str | None) -> SqlError:
    """The error for a request if an owner had taken the request, but the owner's process ended before it stored an
    answer."""
    return SqlError(
        OWNER_MISSING,
        f"process {name}, which ran the statement, ended before it answered: the statement may or may not have "
        "taken effect",
        hint=_COMMITTED_HINT,
    )


def owner_silent(lease: Lease, suspended: int | None, seconds: float, warehouse: str) -> SqlError:
    """The error for a request if the owner that has taken the request has written no heartbeat for ``seconds`` seconds.
    ``suspended`` is the id of the owner's suspended process, if there is one."""
    pid = lease.python_pid if suspended is None else suspended
    state = f"has written no heartbeat for {spoken_seconds(seconds)}" if suspended is None else "is suspended"
    where = "" if lease.host == this_machine() else f" on {lease.host.partition(' ')[0]}"
    resumes = (
        f"the log of process {pid} contains the reason" if suspended is None else f"{resume_command(lease)} resumes it"
    )
    return SqlError(
        OWNER_MISSING,
        f"process {pid}{where}, which runs the statement, {state}: the statement may or may not take effect",
        hint=f"{resumes}; {takeover_command(lease, warehouse)}{where} ends the process; {_COMMITTED_HINT}",
    )


def answer_lost() -> SqlError:
    """The error for a request whose answer was removed because its session had not read the answer within an hour."""
    return SqlError(
        OWNER_MISSING,
        "the answer to the statement is not stored any more: the statement may or may not have taken effect",
        hint=_COMMITTED_HINT,
    )


def store_failed(error: Exception) -> SqlError:
    """The error for a request if the session could neither read the state of the request nor withdraw the request."""
    return SqlError(
        OWNER_MISSING,
        f"the wait for the statement failed ({type(error).__name__}: {error}): the statement may or may not have "
        "taken effect",
        hint=_COMMITTED_HINT,
    )


def _error_answer(request: Request, error: Exception) -> AnswerBody:
    """The answer with an error, for a request whose statement this process has not run, or whose result cannot be
    written as JSON."""
    try:
        body = statement_body(request.body or "")
    except msgspec.MsgspecError:  # Another version of rw_sql wrote the request.
        return AnswerBody(parameters={}, block=None, error=error_body(error), answered_ms=now_ms())
    return AnswerBody(
        parameters=body.parameters,
        block=None if body.block is None else "aborted",
        error=error_body(error),
        answered_ms=now_ms(),
    )


def _agree_on_block(state: SessionState, body: StatementBody) -> None:
    """Raises SqlError BLOCK_ABORTED if the session's block was in the memory of an earlier owner, or was discarded."""
    if body.block is None:
        state.block = None
    elif state.block is None:
        raise SqlError(
            BLOCK_ABORTED,
            "the process that runs the jobs has changed, or has discarded the block because many other sessions were "
            "used since, and the block is lost: none of its statements took effect",
            hint="BEGIN UNSAFE begins another one",
        )
    elif body.block == "aborted":
        state.block.is_aborted = True
