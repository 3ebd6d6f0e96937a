"""``rw-sql diff`` and ``rw-sql apply`` without Spark: their output and their refusals."""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rw_sql.cli.interface.exit_codes import UNREACHABLE
from rw_sql.cli.main import app
from rw_sql.errors import UNDEFINED_COLUMN, UPSTREAM_UNREACHABLE, SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.records import PutObject
from tests.plan.tables import create_table, tables_world
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SOURCE = (
    "CREATE SOURCE ${env}_s (id INT) WITH (connector = 'kafka', topic = 'old', "
    "properties.bootstrap.server = '${BROKER}') FORMAT PLAIN ENCODE JSON;\n"
)
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT id FROM prod_s;\n"
TABLE = create_table("id INT PRIMARY KEY, name VARCHAR")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files and one environment."""
    folder = tmp_path / "pipelines"
    (folder / "views").mkdir(parents=True)
    (folder / "sources.sql").write_text(SOURCE, encoding="utf-8")
    (folder / "views" / "v.sql").write_text(VIEW, encoding="utf-8")
    (folder / ".hidden.sql").write_text("SELECT", encoding="utf-8")
    (folder / "prod.env").write_text("BROKER=127.0.0.1:9092\n", encoding="utf-8")
    return folder


def run(*words: str) -> tuple[int, str]:
    """Exit status and standard output. Raises SqlError."""
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def made(warehouse: Path, *texts: str) -> None:
    """A warehouse with the objects that statements create, without a job."""
    world = tables_world()
    metastore = Metastore.open(str(warehouse))
    for text in texts:
        operation = world.run(text).operation
        assert operation is not None
        metastore.commit(operation, based_on=metastore.snapshot())
    metastore.flush(with_upkeep=True)


def test_a_warehouse_that_is_not_there_is_made_of_all(folder: Path, tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    status, shown = run("diff", str(folder), "-w", str(warehouse), "--env", "prod", "--exit-code")
    assert status == 2
    assert shown.splitlines()[0].startswith("+ create source prod_s")
    assert "properties.bootstrap.server = '127.0.0.1:9092'" in shown
    assert shown.splitlines()[-1] == "2 to create"
    assert not warehouse.exists()


def test_no_difference_prints_nothing(folder: Path, tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    made(warehouse, SOURCE.replace("${env}", "prod").replace("${BROKER}", "127.0.0.1:9092"), VIEW)
    words = (str(folder), "-w", str(warehouse), "--env", "prod")
    assert run("diff", *words, "--exit-code") == (0, "")
    assert run("apply", *words) == (0, "")


def test_a_plan_is_written_and_one_of_before_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, plan = tmp_path / "w", tmp_path / "plan.json"
    source = SOURCE.replace("${env}", "prod").replace("${BROKER}", "127.0.0.1:9092")
    made(warehouse, source)
    run("diff", str(folder), "-w", str(warehouse), "--env", "prod", "--out", str(plan))
    data = json.loads(plan.read_text(encoding="utf-8"))
    assert [(change["action"], change["name"]) for change in data["changes"]] == [("create", "v")]
    for words in (("--allow", "gaps"), ("--env", "prod"), ("--var", "BROKER=b:1")):
        with pytest.raises(SqlError, match=f"so {words[0]} has no effect"):
            run("apply", str(plan), "--yes", *words)
    with pytest.raises(SqlError, match="cannot write"):
        run("diff", str(folder), "-w", str(warehouse), "--env", "prod", "--file", str(tmp_path / "none" / "plan.json"))
    # The plan names its warehouse; there is no user to ask here.
    with pytest.raises(SqlError) as caught:
        run("apply", str(plan))
    assert caught.value.code == "RW304"
    world = tables_world(source)
    operation = world.run("ALTER SOURCE prod_s CONNECTOR WITH (properties.client.id = 'x')").operation
    assert operation is not None
    metastore = Metastore.open(str(warehouse))

    @contextmanager
    def starting(*_: object, **__: object) -> Iterator[None]:
        """The world moves while Spark starts."""
        metastore.commit(operation, based_on=metastore.snapshot())
        yield

    monkeypatch.setattr("rw_sql.cli.spark_start.spark_for", starting)
    with pytest.raises(SqlError, match="the plan is outdated and was not applied") as caught:
        run("apply", str(plan), "--yes")
    assert caught.value.hint == f"make the plan again: rw-sql diff FOLDER --file {plan}"
    moved = metastore.snapshot()
    # And back to its previous place.
    with pytest.raises(SqlError, match="the plan is outdated and was not applied"):
        run("apply", str(plan), "--yes")
    assert Metastore.open(str(warehouse)).snapshot().epoch == moved.epoch
    assert moved.find("materialized_view", "v") is None


@pytest.mark.parametrize("table", ["CREATE TABLE t (id INT)", "CREATE TABLE t AS SELECT 1 AS a"])
def test_a_plan_with_a_table_of_spark_is_refused(folder: Path, tmp_path: Path, table: str) -> None:
    """A plan is a file, which may not be what this version of ``diff`` would write."""
    warehouse, plan = tmp_path / "w", tmp_path / "plan.json"
    (folder / "views" / "v.sql").unlink()
    run("diff", str(folder), "-w", str(warehouse), "--env", "prod", "--file", str(plan))
    data = json.loads(plan.read_text(encoding="utf-8"))
    data["changes"][0].update(kind="table", name="t", statements=[table])
    plan.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(SqlError, match="creates a Spark table"):
        run("apply", str(plan), "--yes")
    assert not warehouse.exists()


def test_json_names_the_error_and_what_was_made(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second ``apply`` of the same folder is told to run again, not to make a plan that it never had."""
    warehouse = tmp_path / "w"
    source = SOURCE.replace("${env}", "prod").replace("${BROKER}", "127.0.0.1:9092")
    made(warehouse, source)
    (folder / "sources.sql").write_text(SOURCE.replace("old", "new"), encoding="utf-8")
    metastore = Metastore.open(str(warehouse))
    ran: list[str] = []

    @contextmanager
    def starting(*_: object, **__: object) -> Iterator[None]:
        yield

    def one(_: object, text: str, **__: object) -> None:
        if ran:
            raise SqlError(UPSTREAM_UNREACHABLE, "the broker is away", hint="start it")
        ran.append(text)

    monkeypatch.setattr("rw_sql.cli.spark_start.spark_for", starting)
    monkeypatch.setattr("rw_sql.session.scripts.run_statements", one)
    monkeypatch.setattr("rw_sql.session.scripts.run_dry", lambda *_: ())
    words = (str(folder), "-w", str(warehouse), "--env", "prod")
    assert run("diff", *words)[1].splitlines()[-1] == "1 to create, 1 unsafe"
    report = json.loads(CliRunner().invoke(app, ["apply", *words, "-o", "json"]).stdout)
    assert (report["error"]["code"], [change["is_made"] for change in report["changes"]]) == ("RW304", [False, False])
    result = CliRunner().invoke(app, ["apply", *words, "--yes", "-o", "json"])
    assert result.exit_code == UNREACHABLE
    report = json.loads(result.stdout)
    assert [(change["name"], change["is_made"]) for change in report["changes"]] == [("prod_s", True), ("v", False)]
    assert (report["error"]["code"], report["error"]["hint"]) == ("RW401", "start it")
    assert "1 of 2 changes were applied; to continue, run the same command again" in result.stderr

    @contextmanager
    def late(*_: object, **__: object) -> Iterator[None]:
        """Another session makes one of the changes while Spark starts."""
        operation = tables_world(source).run(VIEW).operation
        assert operation is not None
        metastore.commit(operation, based_on=metastore.snapshot())
        yield

    monkeypatch.setattr("rw_sql.cli.spark_start.spark_for", late)
    result = CliRunner().invoke(app, ["apply", *words, "--yes", "-o", "json"])
    report = json.loads(result.stdout)
    assert (report["error"]["code"], report["error"]["hint"]) == ("RW309", "run the same command again")
    assert not any(change["is_made"] for change in report["changes"])


def test_nothing_is_made_of_a_plan_that_cannot_be_completed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a plan that drops nothing. A single statement changes nothing if it is refused."""
    ran: list[str] = []
    planned: list[str] = []

    @contextmanager
    def starting(*_: object, **__: object) -> Iterator[None]:
        yield

    def run_dry(_: object, texts: Sequence[str]) -> None:
        planned.extend(texts)
        raise SqlError(UNDEFINED_COLUMN, 'column "x" does not exist', hint="look again")

    monkeypatch.setattr("rw_sql.cli.spark_start.spark_for", starting)
    monkeypatch.setattr("rw_sql.session.scripts.run_statements", lambda _, text, **__: ran.append(text))
    monkeypatch.setattr("rw_sql.session.scripts.run_dry", run_dry)
    words = ("apply", str(folder), "-w", str(tmp_path / "w"), "--env", "prod", "--yes")
    result = CliRunner().invoke(app, [*words, "--keep", "7d"])
    assert isinstance(result.exception, SqlError)
    assert result.exception.message == 'column "x" does not exist'
    assert "0 of 2 changes were applied: a statement would be refused" in result.stderr
    assert ([text.split(" (")[0] for text in planned], ran) == (
        ["CREATE SOURCE prod_s", "CREATE MATERIALIZED VIEW v AS SELECT id FROM prod_s"],
        [],
    )
    planned.clear()
    (folder / "views" / "v.sql").unlink()
    assert run(*words)[0] == 0
    assert ([text.split(" (")[0] for text in ran], planned) == (["CREATE SOURCE prod_s"], [])


def test_keep_sets_the_time_without_other_changes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the parameter has the value already, Spark does not start."""
    warehouse = tmp_path / "w"
    made(warehouse, SOURCE.replace("${env}", "prod").replace("${BROKER}", "127.0.0.1:9092"), VIEW)
    starts: list[str] = []
    ran: list[str] = []

    @contextmanager
    def starting(*_: object, **__: object) -> Iterator[None]:
        starts.append("Spark")
        yield

    monkeypatch.setattr("rw_sql.cli.spark_start.spark_for", starting)
    monkeypatch.setattr("rw_sql.session.scripts.run_statements", lambda _, text, **__: ran.append(text))
    words = ("apply", str(folder), "-w", str(warehouse), "--env", "prod", "--keep")
    assert run(*words, "7d") == (0, "")
    assert ran == ["ALTER SYSTEM SET rollback_window = '7d'"]
    world = tables_world()
    operation = world.run(ran[0]).operation
    assert operation is not None
    metastore = Metastore.open(str(warehouse))
    snapshot = metastore.snapshot()
    changes = tuple(
        replace(change, record=replace(change.record, id=snapshot.next_id))
        for change in operation.changes
        if isinstance(change, PutObject)
    )
    metastore.commit(replace(operation, changes=changes), based_on=snapshot)
    metastore.flush(with_upkeep=True)
    ran.clear()
    starts.clear()
    assert run(*words, "168h", "-o", "json")[0] == 0
    assert (ran, starts) == ([], [])
    assert run(*words, "-1")[0] == 0
    assert ran == ["ALTER SYSTEM SET rollback_window = '-1'"]


def test_a_time_of_keep_that_cannot_be_read_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SqlError, match="--keep must be a time"):
        run("apply", str(folder), "-w", str(tmp_path / "w"), "--env", "prod", "--yes", "--keep", "soon")


def test_a_statement_that_waits_is_told_about(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal, a log shows for what ``apply`` waits."""

    @contextmanager
    def starting(*_: object, **__: object) -> Iterator[None]:
        yield

    monkeypatch.setattr("rw_sql.cli.spark_start.spark_for", starting)
    shown = io.StringIO()

    def run_slowly(*_: object, **__: object) -> None:
        wait_until(lambda: "running for" in shown.getvalue(), "the status line")

    monkeypatch.setattr("rw_sql.session.scripts.run_statements", run_slowly)
    monkeypatch.setattr("rw_sql.session.scripts.run_dry", lambda *_: ())
    monkeypatch.setattr("rw_sql.session.attach.attached_to", lambda _: None)
    monkeypatch.setattr("rw_sql.cli.script.running.own_stderr", lambda: shown)
    assert run("apply", str(folder), "-w", str(tmp_path / "w"), "--env", "prod", "--yes")[0] == 0
    assert "running for 1 s" in shown.getvalue()


def test_what_would_be_dropped_needs_a_word(folder: Path, tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    source = SOURCE.replace("${env}", "prod").replace("${BROKER}", "127.0.0.1:9092")
    made(warehouse, source, VIEW, TABLE)
    words = (str(folder), "-w", str(warehouse), "--env", "prod")
    status, shown = run("diff", *words)
    assert (status, "- drop table t" in shown, "DROP TABLE t;" in shown) == (0, True, True)
    status, shown = run("apply", *words)
    assert status == 0
    assert "unchanged: needs --allow-drop" in shown
    (folder / "t.sql").write_text(TABLE.replace("id INT", "id BIGINT") + ";", encoding="utf-8")
    with pytest.raises(SqlError) as caught:
        run("apply", *words, "--yes")
    assert caught.value.code == "RW312"
    assert "column id is INT" in caught.value.message
    assert "DROP TABLE t;" in (caught.value.detail or "")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["diff", "{folder}"], "RW250"),
        (["diff", "{folder}", "--env", "nowhere"], "RW408"),
        (["diff", "{folder}", "--env", "prod", "--format", "xml"], "RW107"),
        (["diff", "{folder}", "--env", "prod", "--allow", "LOSS"], "RW107"),
        (["diff", "{folder}", "--var", "env"], "RW107"),
        (["diff", "{folder}", "--var", "env=a'b"], "RW214"),
        (["diff", "{folder}/nothing"], "RW408"),
        (["apply", "{folder}/prod.env"], "RW212"),
        (["rollback", "v", "-w", "{folder}/w"], "RW203"),
    ],
)
def test_what_is_refused(folder: Path, words: list[str], code: str) -> None:
    with pytest.raises(SqlError) as caught:
        run(*(word.replace("{folder}", str(folder)) for word in words))
    assert caught.value.code == code


@pytest.mark.parametrize(("name", "written"), [("by_hand", "by_hand"), ("By hand", '"By hand"')])
def test_a_secret_that_does_not_exist_is_named_before_anything_is_changed(
    name: str, written: str, folder: Path, tmp_path: Path
) -> None:
    login = (
        "properties.security.protocol = 'sasl_ssl', properties.sasl.mechanism = 'PLAIN', "
        f"properties.sasl.username = 'me', properties.sasl.password = SECRET {written}, "
    )
    (folder / "sources.sql").write_text(SOURCE.replace("topic =", login + "topic ="), encoding="utf-8")
    warehouse = tmp_path / "w"
    words = (str(folder), "-w", str(warehouse), "--env", "prod")
    assert run("diff", *words)[1].endswith("2 to create\n")
    with pytest.raises(SqlError) as caught:
        run("apply", *words, "--yes")
    assert caught.value.code == "RW203"
    assert caught.value.message == (
        f'source "prod_s" at {folder}/sources.sql:1 needs secret "{name}", which does not exist'
    )
    assert f"CREATE SECRET {written} WITH (backend = 'meta') AS" in (caught.value.hint or "")
    assert not warehouse.exists()
