"""Bytes that are not UTF-8, in texts of upstreams and in a view's casts."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.attached import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark]

_QUERIES = {
    "appended": "SELECT id, CAST(raw AS STRING) AS k FROM s",
    "of_groups": "SELECT CAST(raw AS STRING) AS k, count(*) AS n FROM s GROUP BY 1",
    "of_results": "SELECT id % 2 AS odd, CAST(max(raw) AS STRING) AS k FROM s GROUP BY 1",
    "recomputed": "SELECT r.id, CAST(r.raw AS STRING) AS k FROM by_raw r JOIN by_raw o ON r.id = o.id",
    "changed": "SELECT id, concat_ws('-', raw, 'x') AS k FROM by_raw",
}
_FIXED = "SELECT make_valid_utf8(CAST(raw AS STRING)) AS k, count(*) AS n FROM s GROUP BY 1"


def put(folder: Path, name: str, *rows: tuple[int, bytes]) -> None:
    texts = (json.dumps({"id": number, "raw": base64.b64encode(raw).decode()}) for number, raw in rows)
    (folder / f".{name}").write_text("\n".join(texts))
    (folder / f".{name}").rename(folder / name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def test_a_view_that_casts_bytes_stalls_with_its_column_and_a_remedy(session: AttachedSession, folder: Path) -> None:
    put(folder, "a.json", (1, b"a"), (2, b"b"))
    session.sql(
        "CREATE SOURCE s (id INT, raw BYTEA) WITH (connector = 'posix_fs', refresh.interval.sec = '1', "
        f"posix_fs.root = '{folder}', match_pattern = '*.json') FORMAT PLAIN ENCODE JSON"
    )
    session.sql("CREATE MATERIALIZED VIEW by_raw AS SELECT id, max(raw) AS raw FROM s GROUP BY id")
    for name, query in _QUERIES.items():
        session.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    assert session.flushed_rows_of("of_groups") == [("a", 1), ("b", 1)]
    for name, query in _QUERIES.items():
        assert session.rows_of(name) == sorted(tuple(row) for row in session.sql(query)), name
    put(folder, "b.json", (1, b"z\xfc"))

    def stalled() -> set[str]:
        reasons = "\n".join(job.reason or "" for job in session.jobs().values())
        return {
            name
            for name in _QUERIES
            if f'column "k" of materialized view "{name}": a string is not UTF-8' in reasons
            and f"ALTER MATERIALIZED VIEW {name} AS SELECT … make_valid_utf8(…) AS k …" in reasons
        }

    wait_until(lambda: stalled() == set(_QUERIES), "the views stall")
    session.sql(f"ALTER MATERIALIZED VIEW of_groups AS {_FIXED}")
    session.sql("WAIT MATERIALIZED VIEW of_groups")
    assert session.rows_of("of_groups") == [("a", 1), ("b", 1), ("z\ufffd", 1)]


def test_a_text_of_parquet_that_is_not_utf_8_is_an_error_and_the_views_go_on(
    session: AttachedSession, folder: Path
) -> None:
    def put_texts(name: str, *texts: bytes) -> None:
        pq.write_table(pa.table({"name": pa.array(texts, pa.binary()).view(pa.string())}), folder / f".{name}")
        (folder / f".{name}").rename(folder / name)

    put_texts("a.parquet", b"a", b"Z\xfcrich")
    session.sql(
        "CREATE SOURCE p (name VARCHAR) WITH (connector = 'posix_fs', refresh.interval.sec = '1', "
        f"posix_fs.root = '{folder}', match_pattern = '*.parquet') FORMAT PLAIN ENCODE PARQUET"
    )
    session.sql("CREATE MATERIALIZED VIEW v AS SELECT name, count(*) AS n FROM p GROUP BY name")
    assert session.flushed_rows_of("v") == [("a", 1)]
    put_texts("b.parquet", b"a", b"b")
    wait_until(lambda: session.rows_of("v") == [("a", 2), ("b", 1)], "the second file is read")
    assert [row.reason for row in session.sql("SELECT * FROM `p$errors`")] == ["column name: the value is not UTF-8"]


def test_a_computed_column_and_a_view_of_a_user_s_table_stall_too(
    session: AttachedSession, folder: Path, tmp_path: Path
) -> None:
    put(folder, "a.json", (1, b"\xff"))
    session.sql("SET background_ddl = true")
    session.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, raw BYTEA, k VARCHAR AS CAST(raw AS STRING)) WITH "
        f"(connector = 'posix_fs', posix_fs.root = '{folder}', match_pattern = '*.json') FORMAT PLAIN ENCODE JSON"
    )
    own = tmp_path / "own"
    session.spark.sql("SELECT 1 AS id, CAST(X'FF' AS STRING) AS k").write.format("delta").save(str(own))
    session.sql(f"CREATE MATERIALIZED VIEW of_own AS SELECT id, k FROM delta.`{own}`")

    def reasons() -> str:
        return "\n".join(job.reason or "" for job in session.jobs().values())

    wait_until(lambda: 'column "k" of materialized view "of_own": a string is not UTF-8' in reasons(), "a view stalls")
    wait_until(lambda: 'column "k" of table "t": a string is not UTF-8' in reasons(), "a table stalls")
    session.run("ALTER TABLE t DROP COLUMN k", "ALTER TABLE t ADD COLUMN k VARCHAR AS make_valid_utf8(raw)")
    wait_until(lambda: session.rows_of("t", "id") == [(1,)], "the table goes on")
