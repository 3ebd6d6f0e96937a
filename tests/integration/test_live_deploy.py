"""``rw-sql apply`` and ``rollback`` on a live warehouse: it reaches the folder's state, continues after a failure, and
returns."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rw_sql.cli.deploy.execution import StatementRunner
from rw_sql.cli.main import app
from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.errors import UPSTREAM_UNREACHABLE, SqlError
from rw_sql.metastore import Metastore
from tests.integration.attached import AttachedSession, produce_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SOURCE = (
    "CREATE SOURCE s (id INT, k INT) WITH (connector = 'kafka', topic = '${TOPIC}', "
    "properties.bootstrap.server = '${BROKER}') FORMAT PLAIN ENCODE JSON;\n"
)
COUNTS = "CREATE MATERIALIZED VIEW counts AS SELECT k, count(*) AS n FROM s GROUP BY k;\n"
TOP = "CREATE MATERIALIZED VIEW top AS SELECT k, n FROM counts WHERE n > 0;\n"


@pytest.mark.long
def test_a_warehouse_is_brought_to_a_folder_and_back(
    session: AttachedSession,
    broker: BrokerInfo,
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def running(
        warehouse: str | None, *, run_jobs: bool = True, status: Callable[[str], None] | None = None
    ) -> Iterator[SparkSession]:
        """The existing session; the tests of ``rw-sql run`` show the sessions that commands start."""
        assert warehouse == session.warehouse
        assert run_jobs
        yield session.spark

    monkeypatch.setattr("rw_sql.cli.spark_start.spark_for", running)
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, [{"id": id_, "k": id_ % 3} for id_ in range(30)])
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "test.env").write_text(f"TOPIC={topic_name}\nBROKER={broker.bootstrap}\n", encoding="utf-8")

    def write(*texts: str) -> None:
        (folder / "all.sql").write_text("".join(texts), encoding="utf-8")

    def run(command: str, target: str, *words: str) -> str:
        env = () if command == "rollback" else ("--env", "test")
        target = str(folder) if target == "FOLDER" else target
        result = CliRunner().invoke(app, [command, target, "-w", session.warehouse, *env, *words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout

    # Nothing is made of a plan with a wrong query.
    write(TOP.replace("n > 0", "nothing > 0"), COUNTS, SOURCE)
    with pytest.raises(SqlError, match="nothing"):
        run("apply", str(folder), "--yes")
    write(TOP, COUNTS, SOURCE)
    assert "3 to create" in run("diff", str(folder))
    # Interrupted half-way: completed changes stay, and the same command continues.
    with failing_after(2), pytest.raises(SqlError, match="the broker is away"):
        run("apply", str(folder), "--yes")
    assert "1 to create" in run("diff", str(folder))
    run("apply", str(folder), "--yes")
    session.run("FLUSH")
    assert session.rows_of("top") == [(0, 10), (1, 10), (2, 10)]
    assert run("diff", str(folder), "--exit-code") == ""
    # Another query, a property, a name, and an object that the folder no longer has, in one saved plan.
    write(
        SOURCE.replace("topic", "source_rate_limit = 1000, topic"),
        COUNTS.replace("count(*) AS n", "count(*) AS n, max(id) AS last"),
        "-- rw: renamed from top\n" + TOP.replace("VIEW top", "VIEW roof"),
    )
    plan = tmp_path / "plan.json"
    shown = run("diff", str(folder), "--file", str(plan))
    assert "1 to alter, 1 to rename, 1 to rebuild" in shown
    assert "to read: about 30 rows" in shown
    result = CliRunner().invoke(app, ["apply", str(plan), "--yes", "--keep", "7d"])
    assert result.exit_code == 0, result.output
    assert Metastore.open(session.warehouse).snapshot().parameter("rollback_window") == "604800000ms"
    assert run("diff", str(folder), "--exit-code") == ""
    session.run("FLUSH")
    assert session.rows_of("counts") == [(0, 10, 27), (1, 10, 28), (2, 10, 29)]
    assert session.rows_of("roof") == [(0, 10), (1, 10), (2, 10)]
    assert not any(row.name == "top" for row in session.sql("SHOW MATERIALIZED VIEWS"))
    # The same plan is of before.
    with pytest.raises(SqlError, match="outdated"):
        raise CliRunner().invoke(app, ["apply", str(plan), "--yes"]).exception or AssertionError
    run("rollback", "counts", "--yes")
    assert session.spark.table("counts").columns == ["k", "n"]
    session.run("FLUSH")
    assert session.rows_of("roof") == session.rows_of("counts") == [(0, 10), (1, 10), (2, 10)]
    with pytest.raises(SqlError, match="is already rolled back"):
        run("rollback", "counts", "--yes")
    assert "1 to rebuild" in run("diff", str(folder))
    _drops_nothing_for_a_wrong_definition(session, write, run)
    _a_star_selects_the_column_that_its_table_gets(session, write, run)
    _a_table_moves_and_its_columns_change(session, write, run)
    _a_plan_that_fails_is_made_again(session, write, run, plan)


@contextmanager
def failing_after(count: int) -> Iterator[None]:
    """A context in which ``apply`` runs only this many statements; the next one fails."""
    run, left = StatementRunner.run, count

    def run_one(self: StatementRunner, spark: SparkSession, text: str) -> None:
        nonlocal left
        if not left:
            raise SqlError(UPSTREAM_UNREACHABLE, "the broker is away", hint="start it")
        left -= 1
        run(self, spark, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StatementRunner, "run", run_one)
        yield


def _drops_nothing_for_a_wrong_definition(
    session: AttachedSession, write: Callable[..., None], run: Callable[..., str]
) -> None:
    """A recreated view reads a column that does not exist: the error comes before the first DROP."""
    upserts = SOURCE.replace("id INT,", "id INT PRIMARY KEY,").replace("CREATE SOURCE", "CREATE TABLE")
    write(upserts, COUNTS.replace("FROM s", "FROM s WHERE nothing"))
    before = Metastore.open(session.warehouse).snapshot()
    with pytest.raises(SqlError, match="nothing"):
        run("apply", "FOLDER", "--yes", "--allow-drop")
    assert Metastore.open(session.warehouse).snapshot().epoch == before.epoch
    write(upserts, COUNTS)
    run("apply", "FOLDER", "--yes", "--allow-drop")
    session.run("FLUSH")
    assert session.rows_of("counts") == [(0, 10), (1, 10), (2, 10)]
    assert run("diff", "FOLDER", "--exit-code") == ""


def _a_star_selects_the_column_that_its_table_gets(
    session: AttachedSession, write: Callable[..., None], run: Callable[..., str]
) -> None:
    """A new view reads the column through a view with a ``*``: one plan changes all three."""
    table = SOURCE.replace("id INT,", "id INT PRIMARY KEY,").replace("CREATE SOURCE", "CREATE TABLE")
    star = "CREATE MATERIALIZED VIEW star AS SELECT * FROM s;\n"
    write(table, COUNTS, star)
    run("apply", "FOLDER", "--yes")
    wider = table.replace("k INT)", "k INT, note VARCHAR)")
    write(wider, COUNTS, star, "CREATE MATERIALIZED VIEW notes AS SELECT id, note FROM star;")
    assert "1 to create, 1 to alter, 1 to rebuild" in run("diff", "FOLDER")
    run("apply", "FOLDER", "--yes")
    assert run("diff", "FOLDER", "--exit-code") == ""
    session.run("FLUSH")
    assert session.spark.table("star").columns == ["id", "k", "note"]
    assert session.rows_of("notes") == [(id_, None) for id_ in range(30)]
    write(table, COUNTS)
    run("apply", "FOLDER", "--yes", "--allow-drop")
    assert run("diff", "FOLDER", "--exit-code") == ""


def _a_table_moves_and_its_columns_change(
    session: AttachedSession, write: Callable[..., None], run: Callable[..., str]
) -> None:
    """A table moves into a new schema, and gives up a column together with the column that is computed from it."""
    table = SOURCE.replace("id INT,", "id INT PRIMARY KEY,").replace("CREATE SOURCE", "CREATE TABLE")
    write(table.replace("k INT)", "k INT, twice INT AS k * 2)"), COUNTS)
    run("apply", "FOLDER", "--yes")
    schema, moved = "CREATE SCHEMA raw;\n", "-- rw: renamed from s\n" + table.replace("TABLE s", "TABLE raw.s")
    write(
        schema,
        moved.replace("k INT)", "key INT FROM k, twice INT AS key * 2)"),
        COUNTS.replace("SELECT k", "SELECT key AS k").replace("FROM s GROUP BY k", "FROM raw.s GROUP BY key"),
    )
    run("apply", "FOLDER", "--yes", "--allow-drop")
    session.run("FLUSH")
    assert session.rows_of("counts") == [(0, 10), (1, 10), (2, 10)]
    assert session.spark.table("raw.s").columns == ["id", "key", "twice"]
    write(schema, moved.replace(", k INT)", ")"))
    run("apply", "FOLDER", "--yes", "--allow-drop")
    assert run("diff", "FOLDER", "--exit-code") == ""
    assert session.spark.table("raw.s").columns == ["id"]
    # The log still contains the values of the column that comes back.
    write("-- rw: renamed from raw.s\n" + table, COUNTS)
    assert 'table "s" had a column for field "k"' in " ".join(run("diff", "FOLDER").split())
    run("apply", "FOLDER", "--yes", "--allow-drop")
    assert run("diff", "FOLDER", "--exit-code") == ""
    session.run("FLUSH")
    assert session.rows_of("counts") == [(0, 10), (1, 10), (2, 10)]


def _a_plan_that_fails_is_made_again(
    session: AttachedSession, write: Callable[..., None], run: Callable[..., str], plan: Path
) -> None:
    """A plan whose second change fails says that it must be made again; a renamed view is rolled back."""
    table = SOURCE.replace("id INT,", "id INT PRIMARY KEY,").replace("CREATE SOURCE", "CREATE TABLE")
    wider = COUNTS.replace("count(*) AS n", "count(*) AS n, max(id) AS last")
    write(table, wider, "CREATE MATERIALIZED VIEW more AS SELECT n FROM counts;")
    run("diff", "FOLDER", "--file", str(plan))
    with failing_after(2):
        result = CliRunner().invoke(app, ["apply", str(plan), "--yes"])
    assert isinstance(result.exception, SqlError)
    assert f"1 of 2 changes were applied; to continue, make the plan again: rw-sql diff FOLDER --file {plan}" in (
        " ".join(result.stderr.split())
    )
    session.run("ALTER MATERIALIZED VIEW counts RENAME TO totals")
    run("rollback", "public.totals", "--yes")
    assert session.spark.table("totals").columns == ["k", "n"]
