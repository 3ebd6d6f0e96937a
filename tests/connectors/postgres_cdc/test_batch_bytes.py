"""The size of a batch in bytes."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.postgres_cdc import decoder, reader, stream
from tests.support.postgres_changes import Replica, cdc_options

if TYPE_CHECKING:
    from tests.support.postgres import PostgresInfo

pytestmark = pytest.mark.postgres

_LIMIT, _ROW, _ROWS = 300_000, 20_000, 60


def test_a_batch_ends_at_a_number_of_bytes(postgres: PostgresInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (decoder, reader):
        monkeypatch.setattr(module, "BATCH_BYTES", _LIMIT)
    monkeypatch.setattr(stream, "SPOOL_BYTES", 50_000)
    table = f"public.t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, word TEXT)")
    fill = f"INSERT INTO {table} SELECT i, repeat('x', {_ROW}) FROM generate_series"
    postgres.run(f"{fill} (1, {_ROWS}) i")
    replica = Replica(cdc_options(postgres), [table], chunk_rows=5)
    sizes = []
    while not all(each.is_done for each in replica.progress.values()):
        sizes.append(replica.step(most=10_000, wait=0.5).records.nbytes)
    replica.close()
    for number in range(_ROWS):
        postgres.run(f"{fill} ({1000 + number}, {1000 + number}) i")
    postgres.run(f"{fill} (2001, {2000 + _ROWS}) i")
    whole = 0
    while len(replica.rows[table]) < 3 * _ROWS:
        taken = replica.step(most=10_000, wait=0.5)
        ends = set(taken.records["_rw_offset"].to_pylist())
        whole = max(whole, taken.records.nbytes if len(ends) == 1 else 0)
        sizes.append(taken.records.nbytes if len(ends) > 1 else 0)
    # The last row or chunk may exceed it.
    assert max(sizes) < _LIMIT + 6 * _ROW
    assert whole > _ROWS * _ROW, "a transaction is one batch, however large it is"
    assert replica.differences() == {}
    replica.drop()
