"""Statements whose session has given up or was killed: whether the owner still runs them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from deltalake.exceptions import DeltaError

from rw_sql.metastore.facts import ASKED, DONE, WITHDRAWN, Request
from rw_sql.metastore.table import StoredTable
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.remote.request_messages import AnswerBody, StatementBody, answer_body, to_json
from rw_sql.runtime.support.processes import now_ms
from tests.runtime.remote.remote_sessions import SOURCE, Client, Pair, request_names
from tests.support.waits import wait_until
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path


def test_a_request_that_nobody_takes_is_withdrawn(tmp_path: Path) -> None:
    pair = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    client = Client(pair.written.uri)
    client.state.parameters["statement_timeout"] = "500ms"
    error = client.error(SOURCE)
    assert error.code == "RW425"
    assert error.message.endswith("did not accept the statement within 0.5 s: nothing was changed")
    pair.server.look()
    assert client.context.metastore.snapshot().epoch == 0
    lease = pair.written.metastore.jobs.lease()
    assert lease is not None
    pair.written.metastore.jobs.release_lease(lease)
    assert client.error(SOURCE).message.startswith("no process runs the jobs of this warehouse")


@pytest.mark.parametrize(("minutes", "is_run"), [(0, True), (9, True), (-60, True), (11, False), (60 * 24 * 7, False)])
def test_a_statement_whose_session_was_killed_is_not_run_by_a_later_owner(
    tmp_path: Path, minutes: int, is_run: bool
) -> None:
    """Nobody waits for it any more: a session that runs withdraws its request after ``statement_timeout``."""
    pair = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    jobs = pair.context.metastore.jobs
    parameters = {"statement_timeout": "30000ms", "search_path": "a"}
    body = StatementBody(
        text="ALTER SYSTEM SET enable_unsafe_ops = true", parameters=parameters, block="open", can_ask=False, user="u"
    )
    if is_run:
        body = replace(body, block=None)
    asked = Request(
        request="r",
        session="s",
        resource_group="default",
        state=ASKED,
        asked_ms=now_ms() - minutes * 60_000 - 29_000,
        body=to_json(body),
    )
    jobs.requests.add(asked)
    pair.server.look()
    wait_until(lambda: not jobs.requests.unanswered("default"), "every request is answered")
    assert pair.context.metastore.snapshot().epoch == int(is_run)
    found = jobs.requests.find("r")
    assert found is not None
    answer = answer_body(found.answer or "")
    assert (found.state, answer.parameters, answer.error is None) == (DONE, parameters, is_run)
    if answer.error is not None:
        assert "nothing was changed" in answer.error.message
        assert answer.block == "aborted"


@pytest.mark.parametrize(
    "body",
    [
        "of another version",
        to_json(
            StatementBody(
                text="SHOW JOBS", parameters={"statement_timeout": "soon"}, block=None, can_ask=False, user="u"
            )
        ),
    ],
)
def test_an_old_request_that_cannot_be_read_is_answered_too(tmp_path: Path, body: str) -> None:
    pair = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    jobs = pair.context.metastore.jobs
    jobs.requests.add(Request(request="r", session="s", resource_group="default", state=ASKED, asked_ms=1, body=body))
    pair.server.look()
    wait_until(lambda: not jobs.requests.unanswered("default"), "every request is answered")
    found = jobs.requests.find("r")
    assert found is not None
    answer = answer_body(found.answer or "")
    assert answer.error is not None
    assert "nothing was changed" in answer.error.message


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DeltaError("away"), OSError("away")])
@pytest.mark.parametrize("place", ["add", "wait", "append"])
def test_a_statement_that_the_user_saw_fail_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, error: BaseException
) -> None:
    """The error comes after the request is stored: as the reply, in the table's code, or while the session waits."""
    pair = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    client = Client(pair.written.uri)
    jobs = client.context.metastore.jobs
    added, read, appended = jobs.requests.add, jobs.requests.find, StoredTable.append
    failures = [error]

    def fail() -> None:
        if failures:
            raise failures.pop()

    def add(request: Request) -> None:
        added(request)
        if place == "add":
            fail()

    def look(name: str) -> Request | None:
        if place == "wait":
            fail()
        return read(name)

    def append(table: StoredTable, *given: Any, **named: Any) -> None:
        appended(table, *given, **named)
        if place == "append":
            fail()

    monkeypatch.setattr(jobs.requests, "add", add)
    monkeypatch.setattr(jobs.requests, "find", look)
    monkeypatch.setattr(StoredTable, "append", append)
    with pytest.raises(type(error)):
        client.run(SOURCE)
    monkeypatch.undo()
    pair.server.look()
    (name,) = request_names(pair)
    found = pair.context.metastore.jobs.requests.find(name)
    assert found is not None
    assert found.state == WITHDRAWN
    assert pair.context.metastore.snapshot().epoch == 0


def test_a_wait_that_fails_after_the_owner_took_the_statement_says_that_the_outcome_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    client = Client(pair.written.uri)

    def wait(_: Request, __: SessionState) -> AnswerBody:
        pair.server.look()
        raise DeltaError("the store is away")

    monkeypatch.setattr(client.executor, "_wait", wait)
    error = client.error(SOURCE)
    assert (error.code, error.message) == (
        "RW425",
        "the wait for the statement failed (DeltaError: the store is away): the statement may or may not have "
        "taken effect",
    )
    wait_until(lambda: pair.context.metastore.snapshot().epoch == 1, "the statement has taken effect")
