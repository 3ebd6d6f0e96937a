"""Statements that a session without a JVM passes to the owner through the catalog."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import ASKED, DONE, TAKEN, Request
from rw_sql.runtime.control import remote_executor
from rw_sql.runtime.control.executor import Executor
from rw_sql.runtime.control.remote_executor import RemoteExecutor
from rw_sql.runtime.control.request_server import RequestServer
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.spark.absent import NoSpark
from rw_sql.runtime.support.secrets import KEY_VARIABLE
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax import parse_statement
from tests.support.stored_warehouse import KEY
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rw_sql.plan.result.confirmation import Question

SOURCE = (
    "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '9', fields.id.kind = 'sequence') "
    "FORMAT PLAIN ENCODE JSON"
)


def context_of(uri: str, owner: str) -> Context:
    return Context(warehouse=Warehouse.at(uri), metastore=Metastore.open(uri), sessions=NoSpark(), owner=owner)


@dataclass
class Client:
    """One session."""

    uri: str

    def __post_init__(self) -> None:
        self.context = context_of(self.uri, "client")
        self.executor = RemoteExecutor(self.context)
        self.state = SessionState()

    def run(self, text: str) -> list[tuple[object, ...]]:
        return list(self.executor.run(text, parse_statement(text), self.state).rows)

    def error(self, text: str) -> SqlError:
        with pytest.raises(SqlError) as caught:
            self.run(text)
        return caught.value.located(text)


@dataclass
class Pair:
    """An owner that has applied every statement, and the warehouse."""

    written: WrittenWarehouse

    def __post_init__(self) -> None:
        lease = self.written.lease(applied=10**6)
        self.context = context_of(self.written.uri, lease.owner)
        self.context.owning.set()
        self.server = RequestServer(self.context, Executor(self.context, None).run)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    made.server.start()
    yield made
    made.server.stop()


def test_statements_errors_and_parameters_of_two_sessions(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    one, two = Client(pair.written.uri), Client(pair.written.uri)
    assert one.run(SOURCE)[0][:2] == ("s", "CREATED")
    assert [row[0] for row in two.run("SHOW SOURCES")] == ["s"]
    error = two.error("PAUSE SOURCE r")
    assert error.render().splitlines()[:3] == [
        'RW203: source "r" does not exist',
        "LINE 1: PAUSE SOURCE r",
        "                     ^",
    ]
    one.run("SET statement_timeout = '5s'")
    two.run("SHOW JOBS")
    assert (one.state.parameters, two.state.parameters) == ({"statement_timeout": "5000ms"}, {})
    one.run("CREATE SECRET word WITH (backend = 'meta') AS 'hidden value'")
    assert [row[0] for row in two.run("SHOW SECRETS")] == ["word"]
    stored = DeltaTable(f"{pair.written.uri}/rw_catalog/runtime_requests").to_pyarrow_table().to_pylist()
    assert "hidden value" not in json.dumps(stored)
    newest = {row["request"]: row for row in sorted(stored, key=lambda row: row["seq"])}
    assert {(row["state"], row["body"]) for row in newest.values()} == {(DONE, None)}
    operation = pair.context.metastore.operations()[0]
    assert operation.actor


def test_an_unsafe_statement_is_confirmed_by_the_asking_session(pair: Pair) -> None:
    client = Client(pair.written.uri)
    client.run(SOURCE)
    client.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    client.run("PAUSE SOURCE s")
    unsafe = "ALTER SOURCE s UNSAFE SET (datagen.rows.total = '8')"
    assert "there is nobody to ask here" in client.error(unsafe).message
    asked: list[Question] = []

    def answer(yes: bool) -> None:
        def ask(question: Question) -> bool:
            asked.append(question)
            return yes

        client.state.ask = ask

    answer(False)
    assert client.error(unsafe).message == "the operation was not confirmed"
    answer(True)
    assert client.run(unsafe)[0][0] == "s"
    assert len(asked) == 2
    assert all(question.preview for question in asked)


def test_a_block_belongs_to_its_session_and_to_its_owner(pair: Pair) -> None:
    one, two = Client(pair.written.uri), Client(pair.written.uri)
    one.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    one.run("BEGIN UNSAFE")
    assert two.run("ROLLBACK")[0][2] == "there is no block in progress"
    assert one.error("CREATE SCHEMA other").code == "RW331"
    assert one.state.block is not None
    assert one.state.block.is_aborted
    assert one.run("ROLLBACK")[0][1] == "ROLLBACK"
    one.run("BEGIN UNSAFE")
    pair.server.stop()
    pair.server = RequestServer(pair.context, Executor(pair.context, None).run)
    pair.server.start()
    assert one.error("COMMIT").message.startswith("the process that runs the jobs has changed")
    assert one.state.block is None


def test_a_request_that_nobody_takes_is_withdrawn(tmp_path: Path) -> None:
    pair = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    client = Client(pair.written.uri)
    client.state.parameters["statement_timeout"] = "500ms"
    error = client.error(SOURCE)
    assert error.code == "RW425"
    assert error.message.endswith("did not take the statement within 0.5 s: nothing was changed")
    pair.server.look()
    assert client.context.metastore.snapshot().epoch == 0
    lease = pair.written.metastore.jobs.lease()
    assert lease is not None
    pair.written.metastore.jobs.release_lease(lease)
    assert client.error(SOURCE).message.startswith("no process runs the jobs of this warehouse")


def test_an_owner_that_ends_in_the_middle_is_named_and_its_request_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    client, facts = Client(pair.written.uri), pair.written.metastore.jobs
    lease = facts.lease()
    assert lease is not None
    added = client.context.metastore.jobs.add_request

    def add(request: Request) -> None:
        """The owner takes the request, and ends."""
        added(request)
        assert facts.change_request(request, replace(request, state=TAKEN, taken_by=lease.owner))
        assert facts.release_lease(lease)

    monkeypatch.setattr(client.context.metastore.jobs, "add_request", add)
    monkeypatch.setattr(remote_executor, "_OWNER_SECONDS", 0.05)
    error = client.error(SOURCE)
    assert error.message == (
        f"process {lease.owner}, which ran the statement, ended before it answered: the statement is done or not done"
    )
    # The next owner answers what the last one has taken, and does not run it again.
    pair.server.look()
    (found,) = [request for request in map(facts.request, _names(pair)) if request is not None]
    assert (found.state, found.body) == (DONE, None)
    assert pair.context.metastore.snapshot().epoch == 0


def _names(pair: Pair) -> list[str]:
    rows = DeltaTable(f"{pair.written.uri}/rw_catalog/runtime_requests").to_pyarrow_table().to_pylist()
    return sorted({row["request"] for row in rows})


def test_two_owners_do_not_take_one_request(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    request = Request(request="r", session="s", resource_group="default", state=ASKED, asked_ms=1, body="{}")
    written.metastore.jobs.add_request(request)
    other = Metastore.open(written.uri).jobs
    taken = [replace(request, state=TAKEN, taken_by=name) for name in ("one", "two")]
    assert other.change_request(request, taken[0])
    assert not written.metastore.jobs.change_request(request, taken[1])
    assert written.metastore.jobs.request("r") == taken[0]
