"""Statements that a session without a JVM passes to the owner through the catalog."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rw_sql.errors import INVALID_PROPERTY, UNKNOWN_PROPERTY, SqlError
from rw_sql.metastore import Metastore, request_store
from rw_sql.metastore.facts import ASKED, DONE, TAKEN, WITHDRAWN, Request
from rw_sql.runtime.control.executor import Executor
from rw_sql.runtime.control.session_state import Block, SessionState
from rw_sql.runtime.remote import remote_executor, request_server
from rw_sql.runtime.remote.request_messages import AnswerBody, StatementBody, answer_body, to_json
from rw_sql.runtime.remote.request_server import RequestServer
from rw_sql.runtime.spark.interrupts import StatementInterrupted
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.secrets import KEY_VARIABLE
from tests.runtime.remote.remote_sessions import SOURCE, Client, Pair, request_names
from tests.support.stored_warehouse import KEY
from tests.support.waits import wait_until
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.plan.result.confirmation import Question


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
    assert "this session is not interactive" in client.error(unsafe).message
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
    assert two.run("ROLLBACK")[0][2] == "no block is in progress"
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


def use_others(pair: Pair, sessions: int) -> None:
    """Runs a statement in that many other sessions."""
    for _ in range(sessions):
        Client(pair.written.uri).run("SHOW SCHEMAS")


def test_an_open_block_and_a_preview_outlast_many_other_sessions(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each interrupted wait adds a session, and no session says that it ends."""
    monkeypatch.setattr(request_server, "_MOST_SESSIONS", 3)
    one, two = Client(pair.written.uri), Client(pair.written.uri)
    for text in (SOURCE, "ALTER SYSTEM SET enable_unsafe_ops = true", "PAUSE SOURCE s"):
        two.run(text)
    one.run("BEGIN UNSAFE")

    def ask(question: Question) -> bool:
        use_others(pair, 4)
        return bool(question.preview)

    two.state.ask = ask
    assert two.run("ALTER SOURCE s UNSAFE SET (datagen.rows.total = '8')")[0][0] == "s"
    assert one.run("ROLLBACK")[0][1] == "ROLLBACK"
    assert len(pair.server._sessions) <= 4


def test_of_too_many_open_blocks_the_oldest_is_lost_and_the_error_says_so(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_server, "_MOST_SESSIONS", 2)
    clients = [Client(pair.written.uri) for _ in range(3)]
    clients[0].run("ALTER SYSTEM SET enable_unsafe_ops = true")
    for client in clients:
        client.run("BEGIN UNSAFE")
    wait_until(lambda: len(pair.server._sessions) <= 2, "the oldest is discarded")
    assert "has discarded the block because many other sessions were used since" in clients[0].error("ROLLBACK").message
    assert clients[2].run("ROLLBACK")[0][1] == "ROLLBACK"


def test_an_owner_that_ends_in_the_middle_is_named_and_its_request_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    client, facts = Client(pair.written.uri), pair.written.metastore.jobs
    lease = facts.lease()
    assert lease is not None
    added = client.context.metastore.jobs.requests.add

    def add(request: Request) -> None:
        """The owner takes the request, and ends."""
        added(request)
        assert facts.requests.change(request, replace(request, state=TAKEN, taken_by=lease.owner))
        assert facts.release_lease(lease)

    monkeypatch.setattr(client.context.metastore.jobs.requests, "add", add)
    monkeypatch.setattr(remote_executor, "_OWNER_SECONDS", 0.05)
    error = client.error(SOURCE)
    assert error.message == (
        f"process {lease.owner}, which ran the statement, ended before it answered: the statement may or may not "
        "have taken effect"
    )
    # The next owner answers what the last one has taken, and does not run it again.
    pair.server.look()
    (found,) = [request for request in map(facts.requests.find, request_names(pair)) if request is not None]
    assert (found.state, found.body) == (DONE, None)
    assert pair.context.metastore.snapshot().epoch == 0


def test_two_owners_do_not_take_one_request(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    request = Request(request="r", session="s", resource_group="default", state=ASKED, asked_ms=1, body="{}")
    written.metastore.jobs.requests.add(request)
    other = Metastore.open(written.uri).jobs
    taken = [replace(request, state=TAKEN, taken_by=name) for name in ("one", "two")]
    assert other.requests.change(request, taken[0])
    assert not written.metastore.jobs.requests.change(request, taken[1])
    assert written.metastore.jobs.requests.find("r") == taken[0]


KAFKA = "WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'b:9092'"
WITH_LITERALS = (
    f"CREATE SOURCE k (id INT) {KAFKA}, properties.sasl.password = 'hunter2') FORMAT PLAIN ENCODE JSON",
    f"EXPLAIN CREATE SOURCE k (id INT) {KAFKA}, properties.sasl.password = 'hunter2') FORMAT PLAIN ENCODE JSON",
    f"CREATE SOURCE k (id INT) {KAFKA}, properties.sasl.pasword = 'hunter2') FORMAT PLAIN ENCODE JSON",
    f"CREATE SOURCE k {KAFKA}) FORMAT PLAIN ENCODE AVRO (schema.registry = 'http://r', "
    "schema.registry.password = 'hunter2')",
    "CREATE TABLE k (id INT PRIMARY KEY) WITH (connector = 'jdbc', jdbc.url = 'jdbc:postgresql://u:hunter2@h/d')",
    "CREATE CONNECTION c WITH (type = 'kafka', properties.sasl.password = 'hunter2')",
    "ALTER CONNECTION c SET (properties.sasl.password = 'hunter2')",
    "ALTER CONNECTION c CONNECTOR WITH (properties.sasl.password = 'hunter2')",
    f"CREATE SINK n FROM v {KAFKA}, properties.sasl.password = 'hunter2') FORMAT PLAIN ENCODE JSON",
    "ALTER SOURCE k UNSAFE SET (properties.sasl.password = 'hunter2')",
    "SHOW CHECKPOINT '/c' WITH (properties.sasl.password = 'hunter2')",
)


def _texts(pair: Pair) -> str:
    """All texts in the files of the requests' table, whether the newest version has them or not."""
    folder = Path(f"{pair.written.uri}/rw_catalog/runtime_requests")
    while True:
        try:
            return json.dumps([pq.ParquetFile(file).read().to_pylist() for file in sorted(folder.glob("*.parquet"))])
        except FileNotFoundError:  # The owner has just removed it.
            continue


def test_no_statement_with_the_value_of_a_secret_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    pair = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    client = Client(pair.written.uri)
    client.state.parameters["statement_timeout"] = "1ms"
    client.run("CREATE SECRET word WITH (backend = 'meta') AS 'hunter2'")
    assert client.run("EXPLAIN CREATE SECRET s WITH (backend = 'meta') AS 'hunter2'")
    assert client.run("EXPLAIN ALTER SECRET word AS 'hunter2'")
    for text in WITH_LITERALS:
        error = client.error(text)
        assert error.code in (INVALID_PROPERTY.code, UNKNOWN_PROPERTY.code), text
        assert "hunter2" not in error.render()
    assert request_names(pair) == []
    client.state.block = Block(reason=None)
    client.error(WITH_LITERALS[-2])
    assert client.state.block.is_aborted
    # A literal beside a secret's name, and keys that no connector has, are the owner's affair.
    client.state.block = None
    assert client.error(f"CREATE SOURCE k (id INT) {KAFKA}, nonsense = '1') FORMAT PLAIN ENCODE JSON").code == "RW425"
    assert "hunter2" not in _texts(pair)


def test_the_text_of_an_answered_statement_leaves_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_server, "_TIDY_SECONDS", 0.05)
    pair = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    pair.server.start()
    try:
        client = Client(pair.written.uri)
        client.run(SOURCE)
        assert client.error("PAUSE SOURCE r").code == "RW203"
        wait_until(lambda: "sequence" not in _texts(pair), "the text has left the files")
        assert client.run("SHOW SOURCES")
        (first, *_) = _answers(pair)
        assert first.rows[0][:2] == ("s", "CREATED")
    finally:
        pair.server.stop()
    # Without new requests, nothing more is written.
    jobs, table = pair.context.metastore.jobs, f"{pair.written.uri}/rw_catalog/runtime_requests"

    def is_settled() -> bool:
        before = DeltaTable(table).version()
        jobs.requests.tidy()
        return DeltaTable(table).version() == before

    wait_until(is_settled, "nothing more is written")


def _answers(pair: Pair) -> list[AnswerBody]:
    rows = DeltaTable(f"{pair.written.uri}/rw_catalog/runtime_requests").to_pyarrow_table().to_pylist()
    found = [row["answer"] for row in sorted(rows, key=lambda row: row["seq"]) if row["answer"] is not None]
    return [answer_body(text) for text in found]


@pytest.mark.parametrize("block", [None, "open", "aborted"])
def test_the_answer_for_an_ended_owner_keeps_the_parameters_and_aborts_the_block(
    tmp_path: Path, block: str | None
) -> None:
    pair = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    body = StatementBody(text="SHOW JOBS", parameters={"search_path": "a"}, block=block, can_ask=False, user="u")
    taken = Request(
        request="r",
        session="s",
        resource_group="default",
        state=TAKEN,
        asked_ms=1,
        body=to_json(body),
        taken_by="an earlier owner",
    )
    pair.context.metastore.jobs.requests.add(taken)
    pair.context.metastore.jobs.requests.add(replace(taken, request="q", body="of another version"))
    pair.server.look()
    found = pair.context.metastore.jobs.requests.find("r")
    assert found is not None
    answer = answer_body(found.answer or "")
    assert (found.state, answer.parameters) == (DONE, {"search_path": "a"})
    assert answer.block == (None if block is None else "aborted")
    other = pair.context.metastore.jobs.requests.find("q")
    assert other is not None
    assert other.state == DONE


def test_an_answer_that_cannot_be_stored_at_first_is_stored_later(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_server, "_STORE_AGAIN_SECONDS", 0.5)
    client, jobs = Client(pair.written.uri), pair.context.metastore.jobs
    changed, failures = jobs.requests.change, [DeltaError("the store is away"), OSError("and still away")]

    def change(request: Request, later: Request) -> bool:
        if later.state == DONE and failures:
            raise failures.pop()
        return changed(request, later)

    monkeypatch.setattr(jobs.requests, "change", change)
    client.run("SET statement_timeout = '50s'")
    assert client.run(SOURCE)[0][:2] == ("s", "CREATED")
    assert not failures
    assert client.state.parameters == {"statement_timeout": "50000ms"}


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("text", ["COMMIT", "ROLLBACK"])
def test_the_block_ends_with_commit_also_if_the_wait_is_interrupted(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    client = Client(pair.written.uri)
    client.run(SOURCE)
    client.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    client.run("BEGIN UNSAFE")
    pair.server.stop()
    waits = client.executor._wait
    monkeypatch.setattr(client.executor, "_wait", _interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        client.run(text)
    # Withdrawn: the block stays.
    assert not isinstance(caught.value, StatementInterrupted)
    blocks = [client.state.block]

    def wait_until_taken(request: Request, _: SessionState) -> AnswerBody:
        pair.server.look()
        raise KeyboardInterrupt

    monkeypatch.setattr(client.executor, "_wait", wait_until_taken)
    with pytest.raises(StatementInterrupted):
        client.run(text)
    blocks.append(client.state.block)
    assert [block is None for block in blocks] == [False, True]
    monkeypatch.setattr(client.executor, "_wait", waits)
    wait_until(lambda: not pair.context.metastore.jobs.requests.unanswered("default"), "every request is answered")
    pair.server = RequestServer(pair.context, Executor(pair.context, None).run)
    pair.server.start()
    assert client.run("SHOW SOURCES")


def test_a_confirmation_in_advance_does_not_outlive_an_interrupted_statement(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(pair.written.uri)
    client.run(SOURCE)
    client.run("SET unsafe_confirmation = 'yes'")
    pair.server.stop()
    waits = client.executor._wait
    monkeypatch.setattr(client.executor, "_wait", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.run("DROP SOURCE s")
    assert client.state.parameter("unsafe_confirmation") == "yes"  # Withdrawn: nothing ran.

    def wait_until_taken(request: Request, _: SessionState) -> AnswerBody:
        pair.server.look()
        raise KeyboardInterrupt

    monkeypatch.setattr(client.executor, "_wait", wait_until_taken)
    with pytest.raises(StatementInterrupted):
        client.run("DROP SOURCE s")
    assert client.state.parameter("unsafe_confirmation") == "no"
    monkeypatch.setattr(client.executor, "_wait", waits)
    wait_until(lambda: not pair.context.metastore.jobs.requests.unanswered("default"), "the request is withdrawn")
    pair.server = RequestServer(pair.context, Executor(pair.context, None).run)
    pair.server.start()


def test_an_answer_is_kept_for_an_hour_after_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    jobs = pair.context.metastore.jobs
    hours = 3_600_000
    body = StatementBody(text="SHOW JOBS", parameters={}, block=None, can_ask=False, user="u")
    asked = Request(
        request="r",
        session="s",
        resource_group="default",
        state=ASKED,
        asked_ms=now_ms() - 2 * hours,
        body=to_json(body),
    )
    jobs.requests.add(asked)
    pair.server.look()
    wait_until(lambda: not jobs.requests.unanswered("default"), "every request is answered")
    jobs.requests.tidy()
    found = jobs.requests.find("r")
    assert found is not None
    assert found.state == DONE
    monkeypatch.setattr(request_store, "_REQUEST_MS", -hours)
    jobs.requests.add(replace(asked, request="q", state=WITHDRAWN))
    jobs.requests.tidy()
    assert jobs.requests.find("r") is None
    # A session that has slept that long gets an error.
    monkeypatch.setattr(remote_executor, "_OWNER_SECONDS", 0.0)
    client = Client(pair.written.uri)
    with pytest.raises(SqlError, match="is not stored any more: the statement may or may not have taken effect"):
        client.executor._wait(asked, client.state)


def test_a_request_that_is_added_again_is_not_run_again(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    jobs = written.metastore.jobs
    request = Request(request="r", session="s", resource_group="default", state=ASKED, asked_ms=1, body="{}")
    taken = replace(request, state=TAKEN, taken_by="one")
    jobs.requests.add(request)
    assert jobs.requests.change(request, taken)
    jobs.requests.add(request)
    assert jobs.requests.find("r") == taken
