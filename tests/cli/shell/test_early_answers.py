"""What needs neither Spark nor an upstream is answered before Spark is up: no test here starts a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.shell.backend import Backend
from rw_sql.errors import SqlError
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["written", "new"])
def backend(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "written":
        written = WrittenWarehouse(tmp_path / "w")
        written.commit(*written.source(1, "orders"))
    backend = Backend(str(tmp_path / "w"))
    yield backend
    assert not backend.is_starting
    backend.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SHOW SOURCS", "RW101: expected an object type or a parameter after SHOW, found: SOURCS"),
        ("SELEC 1", "HINT: did you mean SELECT?"),
        ("EXPLAIN SELEC 1", "HINT: did you mean SELECT?"),
        ("DROP SUORCE s", "HINT: did you mean SOURCE?"),
        ("\u200bSELECT 1", "U+200B ZERO WIDTH SPACE"),
        ("CREATE SOURCE x (", "RW101: expected column name"),
        ("INJECT", "RW101: expected CHECKPOINT or SOURCE"),
        ("PAUSE SOURCE nothing", 'RW203: source "nothing" does not exist'),
        ("INJECT SOURCE OFFSETS nothing VALUES ('a' = 1)", 'RW203: source "nothing" does not exist'),
        ("DROP SINK nothing", 'RW203: sink "nothing" does not exist'),
        ("CREATE SINK s FROM nothing WITH (connector = 'blackhole')", 'RW203: relation "nothing" does not exist'),
        ("SHOW CREATE SOURCE nothing", 'RW203: source "nothing" does not exist'),
        ("ALTER SYSTEM SET nothing = 1", 'RW213: unrecognized system parameter "nothing"'),
        ("SET statement_timeout = 'soon'", "RW214"),
        ("SHOW CURSORS", "RW301: SHOW CURSORS is understood but not supported"),
        (
            "CREATE SOURCE x (a INT) WITH (connector = 'datagen', rows = 1) FORMAT PLAIN ENCODE JSON",
            'RW204: connector "datagen" has no property "rows"',
        ),
    ],
)
def test_errors(backend: Backend, text: str, said: str) -> None:
    with pytest.raises(SqlError) as raised:
        backend.answer_early(text)
    assert said in raised.value.render()
    assert "LINE 1: " in raised.value.render() or said.startswith("U+")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SHOW TABLES",
        "SHOW TAGS t",  # a statement of a Spark extension
        "DESCRIBE nothing",
        "SET spark.sql.shuffle.partitions = 2",
        "USE nothing",
        "DROP TABLE nothing",
        "FLUSH",
        "BEGIN UNSAFE",
        "CREATE SCHEMA a",
        "CREATE MATERIALIZED VIEW m AS SELECT * FROM a_table_of_spark",
        "CREATE SOURCE x (a INT) WITH (connector = 'datagen') FORMAT PLAIN ENCODE JSON",
        "CREATE SOURCE x (a INT) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'localhost:1')"
        " FORMAT PLAIN ENCODE JSON",
    ],
)
def test_other_statements_wait_for_spark(backend: Backend, text: str) -> None:
    assert backend.answer_early(text) is None


def test_jobs_of_a_new_warehouse(tmp_path: Path) -> None:
    backend = Backend(str(tmp_path / "w"))
    found = backend.answer_early("SHOW JOBS")
    assert found is not None
    assert (found.columns[0][0], found.rows) == ("job", ())
    assert backend.answer_early("SHOW statement_timeout") is None
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("text", ["SHOW SINKS", "SHOW MATERIALIZED VIEWS", "SHOW UNSAFE OPERATIONS"])
def test_lists_without_rows(backend: Backend, text: str) -> None:
    found = backend.answer_early(text)
    assert found is not None
    assert found.columns
    assert not found.rows


def test_names_in_use(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(*written.source(1, "orders"), written.view(2, "totals", 1))
    backend = Backend(str(tmp_path / "w"))
    create = "CREATE SOURCE totals (a INT) WITH (connector = 'datagen') FORMAT PLAIN ENCODE JSON"
    for text, said in [(create, "RW201"), ("DROP SOURCE totals", "RW203")]:
        with pytest.raises(SqlError, match='"totals"') as raised:
            backend.answer_early(text)
        assert raised.value.kind.code == said
    assert backend.answer_early("DROP SOURCE orders CASCADE") is None
    backend.close()
