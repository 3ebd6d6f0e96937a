"""Jobs compact and clean up their tables while they run; readers continue, also across restarts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql.runtime.delta import compaction, table_files
from rw_sql.runtime.delta.delta_log import commit_versions, latest_version
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.upkeep import table_upkeep as log_upkeep
from tests.integration.attached import AttachedSession, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

SOURCE = (
    "CREATE SOURCE s (id INT, k INT) WITH (connector = 'datagen', datagen.rows.per.second = '400', "
    "fields.id.kind = 'sequence', fields.k.max = '4')"
)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs upkeep every three versions. Unneeded files stay for seconds instead of a minute and an hour, because a
    reader of a table's log may have just listed its files."""
    monkeypatch.setattr(log_upkeep, "EVERY_VERSIONS", 3)
    monkeypatch.setattr(compaction, "MOST_SMALL_FILES", 2)
    monkeypatch.setattr(table_files, "GRACE_SECONDS", 10.0)
    monkeypatch.setattr(table_files, "COMMITS_GRACE_SECONDS", 10.0)


def read_everything(session: AttachedSession) -> int:
    """Stops reading; returns the number of rows in each of the views."""
    session.run("PAUSE SOURCE s", "FLUSH")
    (total,) = session.sql("SELECT sum(n) AS n FROM counted")
    rows = session.sql("SELECT count(*) AS n, count(DISTINCT id) AS ids FROM plain")[0]
    assert rows.n == rows.ids
    (sums,) = session.sql("SELECT sum(n) AS n FROM again")
    assert total.n == rows.n == sums.n
    session.sql("RESUME SOURCE s")
    return int(rows.n)


@pytest.mark.usefixtures("often")
def test_views_and_sinks_go_on_while_what_they_read_is_cleaned(
    spark: SparkSession, tmp_path: Path, warehouse: str
) -> None:
    place = Warehouse.at(warehouse)
    session = AttachedSession(spark, warehouse)
    session.run(
        SOURCE,
        "CREATE MATERIALIZED VIEW counted AS SELECT k, count(*) AS n FROM s GROUP BY k",
        "CREATE MATERIALIZED VIEW plain AS SELECT id, k FROM s",
        "CREATE MATERIALIZED VIEW again AS SELECT k, count(*) AS n FROM plain GROUP BY k",
        f"CREATE SINK late FROM s WITH (connector = 'deltalake', location = '{tmp_path}/late', type = 'append-only')",
    )
    log = place.data(1, 1)

    def has_been_cleaned(table: str, version: int) -> bool:
        return latest_version(place, table) >= version and commit_versions(place, table)[0] > 0

    for id_ in (1, 2, 3):
        table = place.data(id_, 1)
        wait_until(partial(has_been_cleaned, table, 8), f"table {id_} was cleaned")
    first = read_everything(session)
    assert first > 0
    assert len(DeltaTable(log).file_uris()) <= 12
    session.detach()

    # All of them start again on the remaining files.
    session = AttachedSession(spark, warehouse)
    newest = latest_version(place, log)
    wait_until(lambda: commit_versions(place, log)[0] > newest, "the log begins after where it stood")
    rows = read_everything(session)
    assert rows > first
    late = DeltaTable(f"{tmp_path}/late").to_pyarrow_table(columns=["id"]).column("id").to_pylist()
    assert len(late) == len(set(late)) >= rows
    assert {job.state for job in session.jobs().values()} == {"RUNNING"}
    session.detach()
