"""Sources of files, in a folder and in a bucket: which records are read, repeated or skipped, and the effect of changed
files."""

from __future__ import annotations

import base64
import gzip
import os
from typing import TYPE_CHECKING

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from rw_sql.errors import SqlError
from rw_sql.model import definitions
from rw_sql.runtime.positions import planned_rows
from tests.integration.attached import READER, AttachedSession, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.long]

KEY = "nobody-may-see-this-key"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def put(folder: Path, name: str, data: str | bytes) -> None:
    """A file that appears whole."""
    hidden = folder / f".{name}"
    hidden.write_bytes(data.encode() if isinstance(data, str) else data)
    hidden.rename(folder / name)


def ids(*numbers: int) -> str:
    return "".join(f'{{"id":{number}}}\n' for number in numbers)


def source(name: str, folder: Path, encode: str, columns: str = "id INT") -> str:
    return (
        f"CREATE SOURCE {name} ({columns}) INCLUDE file AS file INCLUDE offset AS at INCLUDE timestamp AS written WITH "
        f"(connector = 'posix_fs', posix_fs.root = '{folder}', refresh.interval.sec = '1') FORMAT PLAIN ENCODE {encode}"
    )


def test_files_are_read_once_again_and_not_at_all(session: AttachedSession, folder: Path) -> None:
    session.allow_unsafe()
    put(folder, "a.json", ids(1, 2))
    put(folder, "b.json.gz", gzip.compress(ids(3, 4).encode()))
    session.run(source("f", folder, "JSON"), "CREATE MATERIALIZED VIEW v AS SELECT id, file FROM f")
    wanted = [(1, "a.json"), (2, "a.json"), (3, "b.json.gz"), (4, "b.json.gz")]
    assert session.flushed_rows_of("v") == wanted

    # A new file with a last line that has no end and one invalid line.
    put(folder, "c.json", ids(5) + "broken\n" + ids(6).strip())
    wait_until(lambda: (6, "c.json") in session.rows_of("v"), "c.json is read")
    wanted += [(5, "c.json"), (6, "c.json")]
    assert session.rows_of("v") == wanted
    (error,) = session.sql("SELECT * FROM `f$errors`")
    assert (bytes(error.bytes), error.split, error.offset) == (b"broken", "c.json", 9)

    # Discards the position of one file, which is read again, and skips another.
    session.run("PAUSE SOURCE f")
    put(folder, "d.json", ids(7, 8))
    session.run(
        "RESET SOURCE SPLITS f",
        "INJECT SOURCE OFFSETS f VALUES ('a.json' = 0) ALLOW DUPLICATES",
        "INJECT SOURCE OFFSETS f TO LATEST FOR SPLITS ('d.json') ALLOW GAPS",
        "RESUME SOURCE f",
    )
    wanted = sorted([*wanted, (1, "a.json"), (2, "a.json")])
    assert session.flushed_rows_of("v") == wanted
    assert session.positions("f")["d.json"] == (folder / "d.json").stat().st_size

    # A view created now gets each record once, except for the one that was left out.
    session.run("CREATE MATERIALIZED VIEW late AS SELECT id FROM f")
    assert session.flushed_rows_of("late") == [(1,), (2,), (3,), (4,), (5,), (6,)]
    assert session.rows_of("f", "id") == [(number,) for number in range(1, 9)]

    # SHOW CREATE prints the present definition, and running it creates the same source.
    session.run(f"ALTER SOURCE f UNSAFE SET (match_pattern = '*.json*', posix_fs.root = '{folder}')")
    shown = session.sql("SHOW CREATE SOURCE f")[0][1]
    assert f"posix_fs.root = '{folder}'" in shown
    assert "match_pattern = '*.json*'" in shown
    assert session.flushed_rows_of("v") == wanted


def test_files_that_change_or_go(session: AttachedSession, folder: Path) -> None:
    session.allow_unsafe()
    put(folder, "a.json", ids(1))
    put(folder, "b.json", ids(2))
    session.run(source("f", folder, "JSON"), "CREATE MATERIALIZED VIEW v AS SELECT id FROM f")
    assert session.flushed_rows_of("v") == [(1,), (2,)]
    (folder / "b.json").unlink()
    put(folder, "c.json", ids(3))
    wait_until(lambda: session.rows_of("v") == [(1,), (2,), (3,)], "what came later is read")
    assert session.job("f").state == "RUNNING"
    assert session.split_statuses("f") == {"a.json": "OK", "b.json": "ORPHAN", "c.json": "OK"}

    put(folder, "a.json", ids(10, 11))
    os.utime(folder / "a.json", (1, 1))
    wait_until(lambda: session.job("f").state == "STALLED", "the change is noticed")
    assert session.job("f").reason == "RECREATED a.json: RESET SOURCE SPLITS f"
    assert session.rows_of("v") == [(1,), (2,), (3,)]
    session.run("RESET SOURCE SPLITS f FOR SPLITS ('a.json')")
    assert session.flushed_rows_of("v") == [(1,), (2,), (3,), (10,), (11,)]


def test_moves_keep_the_rows_of_deleted_files(session: AttachedSession, folder: Path) -> None:
    def moved(inject: str) -> int:
        session.run("PAUSE SOURCE f", f"INJECT SOURCE OFFSETS f {inject}")
        operation = int(session.sql("SHOW UNSAFE OPERATIONS FOR f")[0].operation)
        wait_until(
            lambda: (
                session.sql("SHOW UNSAFE OPERATIONS FOR f")[0].rewind == f"REWIND SOURCE f TO OPERATION {operation}"
            ),
            "the rewind point is made",
        )
        session.run("RESUME SOURCE f")
        return operation

    def require(*numbers: int) -> None:
        wait_until(lambda: session.rows_of("v") == [(number,) for number in numbers], f"the rows are {numbers}")

    session.allow_unsafe()
    session.run("ALTER SYSTEM SET rewind_point_timeout = '20s'")
    put(folder, "a.json", ids(1))
    put(folder, "b.json", ids(2))
    session.run(source("f", folder, "JSON"), "CREATE MATERIALIZED VIEW v AS SELECT id FROM f")
    assert session.flushed_rows_of("v") == [(1,), (2,)]

    # A file that was found and read since the operation cannot be read again once it is deleted.
    operation = moved("VALUES ('a.json' = 0) ALLOW DUPLICATES")
    put(folder, "c.json", ids(3))
    require(1, 1, 2, 3)
    (folder / "b.json").unlink()
    (folder / "c.json").unlink()
    with pytest.raises(SqlError, match=r"cannot read again: c\.json at 0 \(GONE\)") as refused:
        session.sql(f"REWIND SOURCE f TO OPERATION {operation}")
    assert refused.value.code == "RW334"
    require(1, 1, 2, 3)

    # Files that had been read before the operation may be deleted, and later files are found again.
    operation = moved("VALUES ('a.json' = 0) ALLOW DUPLICATES")
    put(folder, "d.json", ids(4))
    require(1, 1, 1, 2, 3, 4)
    session.run(f"REWIND SOURCE f TO OPERATION {operation}")
    assert "read again after the next discovery: d.json" in session.questions[-1].preview
    require(1, 1, 2, 3, 4)

    # No move goes back in a deleted file.
    session.run("PAUSE SOURCE f")
    put(folder, "e.json", ids(5))
    session.run("RESET SOURCE SPLITS f")
    operation = moved("TO LATEST FOR SPLITS ('e.json') ALLOW GAPS")
    assert session.flushed_rows_of("v") == [(1,), (1,), (2,), (3,), (4,)]
    (folder / "e.json").unlink()
    with pytest.raises(SqlError, match=r"continue with: e\.json at 0 \(GONE\)"):
        session.sql(f"UNDO OPERATION {operation}")
    moved("TO EARLIEST ALLOW DUPLICATES")
    require(1, 1, 1, 2, 3, 4, 4)
    assert session.job("f").state == "RUNNING"


def test_csv_and_parquet(session: AttachedSession, folder: Path) -> None:
    lines, rows = folder / "lines", folder / "rows"
    lines.mkdir()
    rows.mkdir()
    put(lines, "a.csv", 'id,name\n1,"x, y"\n2,\n')
    put(lines, "b.csv", "name,more,id\nz,0,3\nw\n")
    session.run(
        source("c", lines, "CSV", "id INT, name VARCHAR"),
        source("p", rows, "PARQUET", "id BIGINT, tags VARCHAR[], price NUMERIC(10, 2), at_time TIMESTAMPTZ"),
        "CREATE MATERIALIZED VIEW vc AS SELECT id, name FROM c",
        "CREATE MATERIALIZED VIEW vp AS SELECT id, tags, CAST(price AS STRING) AS price, at_time FROM p",
    )
    assert session.flushed_rows_of("vc") == [(1, "x, y"), (2, None), (3, "z")]
    assert [bytes(error.bytes) for error in session.sql("SELECT * FROM `c$errors`")] == [b"w"]
    table = pa.table(
        {
            "price": pa.array([1.5, 2.25, 1e12], pa.float64()),
            "tags": pa.array([["a", "b"], None, []], pa.list_(pa.string())),
            "id": pa.array([1, 2, 3], pa.int32()),
        }
    )
    pq.write_table(table, rows / "a.parquet", row_group_size=2)
    wait_until(lambda: len(session.rows_of("vp")) == 2, "the Parquet file is read")
    assert session.rows_of("vp") == [(1, ["a", "b"], "1.50", None), (2, None, "2.25", None)]
    (fault,) = session.sql("SELECT * FROM `p$errors`")
    assert fault.reason == "column price: a value of type double does not fit"
    assert session.rows_of("p", "id") == [(1,), (2,)]


def test_small_files_of_many_records_are_read_in_parts(session: AttachedSession, folder: Path) -> None:
    """Some kilobytes become 100 MB, which this process must not hold."""
    lines, rows = folder / "lines", folder / "rows"
    lines.mkdir()
    rows.mkdir()
    count, long = 20_000, "x" * 5_000
    put(lines, "a.json.gz", gzip.compress(f'{{"id":7,"t":"{long}"}}\n'.encode() * count))
    made = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [7] * count, "t": [long] * count}), made, row_group_size=count)
    put(rows, "a.parquet", made.getvalue().to_pybytes())
    assert (rows / "a.parquet").stat().st_size < 30_000
    session.run(
        source("c", lines, "JSON", "id INT, t VARCHAR"),
        source("p", rows, "PARQUET", "id INT, t VARCHAR"),
        "CREATE MATERIALIZED VIEW vc AS SELECT id, length(t) AS size FROM c",
        "CREATE MATERIALIZED VIEW vp AS SELECT id, length(t) AS size FROM p",
        "FLUSH",
    )
    for view in ("vc", "vp"):
        found = session.sql(f"SELECT count(*), min(size), max(size), min(id) FROM {view}")
        assert [tuple(row) for row in found] == [(count, 5_000, 5_000, 7)], view
    # A view of a later time reads the records from the log.
    session.run("CREATE MATERIALIZED VIEW late AS SELECT count(*) AS n, sum(id) AS s FROM p", "FLUSH")
    assert session.rows_of("late") == [(count, 7 * count)]


@pytest.fixture
def bucket() -> Iterator[tuple[str, object]]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key=KEY
    )
    client.create_bucket(Bucket="lake")
    yield endpoint, client
    server.stop()


def test_a_bucket_with_a_secret(
    session: AttachedSession, bucket: tuple[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RW_SQL_SECRET_KEY", base64.b64encode(bytes(32)).decode())
    endpoint, client = bucket
    for number in range(30):
        client.put_object(Bucket="lake", Key=f"in/{number:02}.json", Body=ids(number).encode())  # type: ignore[attr-defined]
    session.run(
        f"CREATE SECRET k WITH (backend = 'meta') AS '{KEY}'",
        "CREATE SOURCE f (id INT) INCLUDE file AS file WITH (connector = 's3', s3.bucket_name = 'lake', "
        f"s3.region_name = 'us-east-1', s3.endpoint_url = '{endpoint}', s3.credentials.access = 'k', "
        "s3.credentials.secret = SECRET k, match_pattern = 'in/*.json', refresh.interval.sec = '1') "
        "FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id, file FROM f",
    )
    assert session.flushed_rows_of("v") == [(number, f"in/{number:02}.json") for number in range(30)]
    client.put_object(Bucket="lake", Key="in/late.json", Body=ids(99).encode())  # type: ignore[attr-defined]
    client.put_object(Bucket="lake", Key="out/late.json", Body=ids(98).encode())  # type: ignore[attr-defined]
    wait_until(lambda: (99, "in/late.json") in session.rows_of("v"), "the late file is read")
    assert len(session.rows_of("v")) == 31
    assert KEY not in str(session.sql("SHOW CREATE SOURCE f"))


LINES, KEYS = 60_000, 40


def put_updates(folder: Path, name: str, first: int) -> dict[int, int]:
    """A file in which several lines have the same offset; returns the last value of each key."""
    values = [(at % KEYS, first + at // 3_000) for at in range(LINES)]
    put(folder, name, gzip.compress("".join(f'{{"id":{key},"v":{value}}}\n' for key, value in values).encode()))
    assert (folder / name).stat().st_size < LINES / 5
    return dict(values)


@pytest.mark.parametrize("is_large", [True, False])
def test_the_last_line_of_a_key_counts_among_lines_with_one_offset(
    session: AttachedSession, folder: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    if is_large:
        for place in (*READER, planned_rows):
            monkeypatch.setattr(place, "SMALL_ROWS", -1)
    wanted = put_updates(folder, "a.json.gz", 0)
    session.run(
        "CREATE TABLE f (id INT PRIMARY KEY, v INT) WITH "
        f"(connector = 'posix_fs', posix_fs.root = '{folder}', refresh.interval.sec = '1') FORMAT PLAIN ENCODE JSON"
    )
    assert dict(session.flushed_rows_of("f")) == wanted
    assert session.job("f").reason == ""


def test_a_table_from_before_the_index_continues(
    session: AttachedSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "a.json", '{"id":1,"v":1}\n{"id":2,"v":2}\n')
    with monkeypatch.context() as older:
        older.setattr(definitions, "has_shared_offsets", lambda _: False)
        session.run(
            "CREATE TABLE f (id INT PRIMARY KEY, v INT) WITH "
            f"(connector = 'posix_fs', posix_fs.root = '{folder}', refresh.interval.sec = '1') FORMAT PLAIN ENCODE JSON"
        )
        assert session.flushed_rows_of("f") == [(1, 1), (2, 2)]
        session.detach()
    later = AttachedSession(session.spark, session.warehouse)
    try:
        put(folder, "b.json", '{"id":2,"v":3}\n{"id":3,"v":3}\n')
        wait_until(lambda: len(later.rows_of("f")) == 3, "the file is read")
        assert later.flushed_rows_of("f") == [(1, 1), (2, 3), (3, 3)]
        # Its new query sorts by the index, which rows of the older version lack.
        later.run("ALTER TABLE f ADD COLUMN w INT")
        put(folder, "c.json", '{"id":3,"v":4,"w":4}\n')
        wait_until(lambda: (3, 4, 4) in later.rows_of("f"), "the file is read")
        assert later.flushed_rows_of("f") == [(1, 1, None), (2, 3, None), (3, 4, 4)]
    finally:
        later.detach()
