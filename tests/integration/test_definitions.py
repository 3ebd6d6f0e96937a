"""SHOW CREATE prints the catalog's definition in a form that can be run elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import rw_sql
from rw_sql.cli.servers.kafka_topics import create_topic
from tests.integration.attached import AttachedSession

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def records(session: AttachedSession) -> dict[str, dict[str, Any]]:
    """The catalog's records of sources and views by name, without ids, times and the end offsets of that time."""
    rows = session.sql("SELECT name, record FROM rw_catalog.rw_objects WHERE kind IN ('source', 'materialized_view')")
    found = {row.name: json.loads(row.record) for row in rows}
    for record in found.values():
        record.pop("id", None)
        record.pop("inputs", None)
        record.pop("created_at_ms")
        record.pop("birth", None)
    return found


def definitions(session: AttachedSession) -> tuple[str, str]:
    (source,) = session.sql("SHOW CREATE SOURCE events")
    (view,) = session.sql("SHOW CREATE MATERIALIZED VIEW per_kind")
    return source.create_sql, view.create_sql


@pytest.mark.long
def test_a_moved_source_can_be_made_again_elsewhere(
    spark: SparkSession, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    for topic in (topic_name, f"{topic_name}.new"):
        create_topic(broker.bootstrap, topic, 1)
    first = AttachedSession(spark, str(tmp_path / "first"))
    first.allow_unsafe()
    first.run(
        f"""
        /* made with everything that can be said */
        create source if not exists public."events" (
            "Id" bigint, kind varchar, amount numeric(10, 2), tags varchar[], "inner" struct<a int, b varchar>
        )
        include key include partition as part include header 'trace' varchar as trace
        with (paused = true, connector = 'kafka', topic = '{topic_name}',
              properties.bootstrap.server = '{broker.bootstrap}', "scan.startup.mode" = 'latest')
        format plain encode json -- and a remark
        ;""",
        "CREATE MATERIALIZED VIEW per_kind AS SELECT kind, count(*) AS n FROM events GROUP BY kind",
        f"ALTER SOURCE events UNSAFE SET (topic = '{topic_name}.new', group.id.prefix = 'it''s mine')",
        "ALTER SOURCE events UNSAFE UNSET (scan.startup.mode)",
    )
    source, view = definitions(first)
    original = records(first)
    first.detach()

    assert rw_sql.render(rw_sql.parse(source)[0]) == source
    assert original["events"]["definition"] == source
    assert original["per_kind"]["definition"] == view

    second = AttachedSession(spark, str(tmp_path / "second"))
    second.run(source, view)
    assert records(second) == original
    assert definitions(second) == (source, view)
    second.detach()
