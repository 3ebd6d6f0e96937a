"""A small Delta table is compared in memory by a refresh: the same rows and changes as when Spark compares it."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.runtime.refresh import loading
from rw_sql.runtime.refresh.arrow_changes import changed_rows_in_memory

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

COLUMNS = {
    "k": ("BIGINT", pa.int64()),
    "word": ("VARCHAR", pa.string()),
    "share": ("DOUBLE PRECISION", pa.float64()),
    "price": ("NUMERIC(12,2)", pa.decimal128(12, 2)),
    "is_new": ("BOOLEAN", pa.bool_()),
    "day": ("DATE", pa.date32()),
    "at": ("TIMESTAMPTZ", pa.timestamp("us", tz="UTC")),
    "raw": ("BYTEA", pa.binary()),
    "small": ("SMALLINT", pa.int16()),
}
VALUES: dict[str, list[Any]] = {
    "word": [None, "", "a", "ä", "\U0001f600"],
    "share": [None, 0.0, -0.0, float("nan"), float("inf"), 0.1],
    "price": [None, Decimal("0.00"), Decimal("-1.10")],
    "is_new": [None, True, False],
    "day": [None, date(1600, 2, 29), date(9999, 12, 31)],
    "at": [None, datetime(2024, 1, 1, 1, 2, 3, 4, UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)],
    "raw": [None, b"", b"\x00\xff"],
    "small": [None, -32768, 32767],
}


@pytest.mark.parametrize("seed", range(2))
def test_a_small_delta_table_is_compared_in_memory_as_by_spark(
    session: AttachedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    keys = ("k",) if seed % 2 else ("k", "day")
    compared: list[bool] = []
    most = loading.IN_MEMORY_ROWS

    def noted(*given: Any) -> pa.Table | None:
        found = changed_rows_in_memory(*given)
        compared.append(found is not None)
        return found

    def row(key: int) -> dict[str, Any]:
        made = {"k": key} | {name: draw.choice(values) for name, values in VALUES.items()}
        return made | ({"day": made["day"] or date(2024, 1, 1)} if "day" in keys else {})

    def differences(name: str, since: int) -> Counter[str]:
        (found,) = session.sql(f"SELECT id FROM rw_catalog.rw_tables WHERE name = '{name}'")
        table = DeltaTable(session.attached._runtime.context.warehouse.data(int(found.id), 1))
        read = table.load_cdf(starting_version=since).read_all() if table.version() >= since else pa.table({})
        rows = pa.table(read).to_pylist()
        return Counter(str({key: each[key] for key in ("_change_type", *COLUMNS)}) for each in rows)

    def version(name: str) -> int:
        (found,) = session.sql(f"SELECT id FROM rw_catalog.rw_tables WHERE name = '{name}'")
        return DeltaTable(session.attached._runtime.context.warehouse.data(int(found.id), 1)).version()

    monkeypatch.setattr(loading, "changed_rows_in_memory", noted)
    schema = pa.schema([(name, kind) for name, (_, kind) in COLUMNS.items()])
    upstream = str(tmp_path / "upstream")
    given = {key: row(key) for key in range(60)}
    write_deltalake(upstream, pa.Table.from_pylist(list(given.values()), schema=schema))
    listed = ", ".join(f'"{name}" {kind}' for name, (kind, _) in COLUMNS.items())
    for name in ("by_arrow", "by_spark"):
        session.run(
            f"CREATE TABLE {name} ({listed}, PRIMARY KEY ({', '.join(keys)})) WITH (connector = 'delta', "
            f"delta.path = '{upstream}', refresh_mode = 'FULL_RELOAD')"
        )
    for round_ in range(4):
        versions = {name: version(name) for name in ("by_arrow", "by_spark")} if round_ else {}
        for name in ("by_arrow", "by_spark"):
            monkeypatch.setattr(loading, "IN_MEMORY_ROWS", most if name == "by_arrow" else 0)
            session.sql(f"REFRESH TABLE {name}")
            (waited,) = session.sql(f"WAIT TABLE {name}")
            assert waited.change == "WAITED", waited.detail
        stored = [sorted(map(repr, session.sql(f"SELECT * FROM {name}"))) for name in ("by_arrow", "by_spark")]
        assert stored[0] == stored[1]
        assert len(stored[0]) == len(given)
        if round_:
            by_arrow, by_spark = (differences(name, since + 1) for name, since in versions.items())
            assert by_arrow == by_spark
            assert bool(by_arrow) == (round_ < 3)
        if round_ < 2:
            for key in draw.sample(sorted(given), 20):
                column = draw.choice(list(VALUES))
                given[key] = given[key] if column in keys else given[key] | {column: draw.choice(VALUES[column])}
            for key in draw.sample(sorted(given), 5):
                del given[key]
            given |= {key: row(key) for key in range(100 * (round_ + 1), 100 * (round_ + 1) + 5)}
        mode: Any = "overwrite"
        write_deltalake(upstream, pa.Table.from_pylist(list(given.values()), schema=schema), mode=mode)
    assert compared == [True] * 3


def test_a_default_stays_in_the_rows(session: AttachedSession, tmp_path: Path) -> None:
    """The query of such a table computes columns, so that the upstream's rows are not those of the table."""
    upstream = str(tmp_path / "upstream")
    write_deltalake(upstream, pa.table({"k": [1, 2], "word": ["a", None]}))
    session.run(
        "CREATE TABLE t (k BIGINT PRIMARY KEY, word VARCHAR DEFAULT 'none') WITH (connector = 'delta', "
        f"delta.path = '{upstream}', refresh_mode = 'FULL_RELOAD')"
    )
    for _ in range(2):
        session.sql("REFRESH TABLE t")
        (waited,) = session.sql("WAIT TABLE t")
        assert waited.change == "WAITED", waited.detail
        assert session.rows_of("t") == [(1, "a"), (2, "none")]


def test_an_empty_upstream_that_lost_a_column_deletes_nothing(session: AttachedSession, tmp_path: Path) -> None:
    upstream = str(tmp_path / "upstream")
    write_deltalake(upstream, pa.table({"k": [1, 2], "word": ["a", "b"]}))
    session.run(
        "CREATE TABLE t (k BIGINT PRIMARY KEY, word VARCHAR) WITH (connector = 'delta', "
        f"delta.path = '{upstream}', refresh_mode = 'FULL_RELOAD')",
        "REFRESH TABLE t",
        "WAIT TABLE t",
    )
    empty = pa.table({"k": pa.array([], pa.int64()), "renamed": pa.array([], pa.string())})
    write_deltalake(upstream, empty, mode="overwrite", schema_mode="overwrite")
    session.sql("REFRESH TABLE t")
    (waited,) = session.sql("WAIT TABLE t")
    assert "word" in waited.detail
    assert session.rows_of("t") == [(1, "a"), (2, "b")]
