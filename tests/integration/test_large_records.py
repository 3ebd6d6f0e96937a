"""Few records or rows that are too large for the driver of Spark go through its tasks."""

from __future__ import annotations

import base64
import json
import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.runtime.delta import held_rows
from rw_sql.runtime.refresh import staging
from rw_sql.runtime.spark.jvm import java_context

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

MOST = "spark.driver.maxResultSize"


@pytest.fixture
def small_results(session: AttachedSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Spark returns at most 48 MB to its driver, and this process holds 32 MB; the defaults are 1 GB and 128 MB."""
    monkeypatch.setattr(held_rows, "HELD_BYTES", 32 * 1024 * 1024)
    conf = java_context(session.spark.sparkContext).conf()
    conf.set(MOST, "48m")
    yield
    conf.remove(MOST)


@pytest.mark.kafka
@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "direct"])
@pytest.mark.usefixtures("small_results")
def test_records_of_200_kilobytes(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, is_shared: bool, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic_name, 2)
    seed = random.Random(7)
    texts = [base64.b64encode(seed.randbytes(150_000)).decode() for _ in range(300)]
    records = [json.dumps({"id": at, "t": text}).encode() for at, text in enumerate(texts)]
    produce(broker.bootstrap, topic_name, [Record(value=value, partition=at % 2) for at, value in enumerate(records)])
    upstream = f"connector = 'kafka', topic = '{topic_name}', properties.bootstrap.server = '{broker.bootstrap}'"
    session.run(
        f"CREATE SOURCE s (id INT, t VARCHAR) WITH ({upstream}, shared = '{str(is_shared).lower()}') "
        "FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id, t FROM s",
        "CREATE MATERIALIZED VIEW g AS SELECT id, max(t) AS t FROM s GROUP BY id",
        f"CREATE TABLE k (id INT PRIMARY KEY, t VARCHAR) WITH ({upstream}) FORMAT PLAIN ENCODE JSON",
        "FLUSH",
    )
    session.run("CREATE MATERIALIZED VIEW later AS SELECT id, t FROM s", "FLUSH")  # its backfill
    target = tmp_path / "target"
    session.run(f"CREATE SINK w FROM v WITH (connector = 'deltalake', location = '{target}')", "FLUSH")
    assert sorted(DeltaTable(str(target)).to_pyarrow_table(columns=["id"])["id"].to_pylist()) == list(range(300))
    for name in ("v", "g", "k", "later"):
        found = session.sql(f"SELECT count(*), sum(length(t)), count(DISTINCT id) FROM {name}")
        assert [tuple(row) for row in found] == [(300, 300 * 200_000, 300)], name
    assert {job.state for job in session.jobs().values()} <= {"RUNNING", "IDLE"}


@pytest.mark.usefixtures("small_results")
def test_a_refresh_of_rows_of_200_kilobytes(
    session: AttachedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "CHUNK_BYTES", 8 * 1024 * 1024)
    upstream, seed = str(tmp_path / "upstream"), random.Random(7)
    texts = [base64.b64encode(seed.randbytes(150_000)).decode() for _ in range(300)]
    write_deltalake(upstream, pa.table({"id": range(300), "t": texts}))
    session.run(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, t VARCHAR) WITH (connector = 'delta', "
        f"delta.path = '{upstream}', refresh_mode = 'FULL_RELOAD')",
        "REFRESH TABLE t",
    )
    (waited,) = session.sql("WAIT TABLE t")
    assert waited.change == "WAITED", waited.detail
    found = session.sql("SELECT count(*), sum(length(t)), count(DISTINCT t) FROM t")
    assert [tuple(row) for row in found] == [(300, 300 * 200_000, 300)]
    merged = session.sql("SELECT rows FROM rw_catalog.rw_refresh_progress WHERE chunk >= 0")
    assert sum(row.rows for row in merged) == 300
    assert len(merged) == 8  # 60 MB


@pytest.mark.usefixtures("small_results")
def test_a_refresh_of_long_rows_with_adjacent_keys(
    session: AttachedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, chunks = 4 * 1024 * 1024, []
    chunk_of = staging.Staging.chunk

    def chunk(self: staging.Staging, number: int) -> pa.Table:
        chunks.append(chunk_of(self, number))
        return chunks[-1]

    monkeypatch.setattr(staging, "CHUNK_BYTES", most)
    monkeypatch.setattr(staging.Staging, "chunk", chunk)
    upstream, seed = str(tmp_path / "upstream"), random.Random(7)
    long = [base64.b64encode(seed.randbytes(150_000)).decode() for _ in range(250)]
    write_deltalake(
        upstream,
        pa.table({"a": ["x", "y"] * 10_000 + [None] * 250, "id": range(20_250)}).append_column(
            "t", pa.array(["short"] * 20_000 + long)
        ),
    )
    session.run(
        "CREATE TABLE t (a VARCHAR, id BIGINT, t VARCHAR, PRIMARY KEY (id)) WITH (connector = 'delta', "
        f"delta.path = '{upstream}', refresh_mode = 'FULL_RELOAD')",
        "REFRESH TABLE t",
    )
    (waited,) = session.sql("WAIT TABLE t")
    assert waited.change == "WAITED", waited.detail
    found = session.sql("SELECT count(*), sum(length(t)), count(DISTINCT t), count(a) FROM t")
    assert [tuple(row) for row in found] == [(20_250, 20_000 * 5 + 250 * 200_000, 251, 20_000)]
    keys = [(min(ids), max(ids)) for each in chunks if (ids := each["id"].to_pylist())]
    assert all(before[1] < after[0] for before, after in pairwise(keys))
    assert max(each.nbytes for each in chunks) < 2 * most + 200_000
    assert len(chunks) < 30
