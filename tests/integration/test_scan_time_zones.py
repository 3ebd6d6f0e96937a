"""SELECT … FROM source in a session of another time zone returns the rows that a view of the source has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

_ZONE = "spark.sql.session.timeZone"
_WRITTEN_MS = 1_767_268_800_000
"""2026-01-01 12:00:00 UTC, the time of the first record; each next one is 10 minutes later."""

_TIMES = (
    '"2026-07-01 12:00:00", "with_zone": "2026-07-01 12:00:00+02:00"',
    '"2026-07-01T12:00:00.5", "with_zone": "2026-07-01T12:00:00Z"',
    '"2026-10-25 02:30:00", "with_zone": 1767268800000',
    '1767268800000, "with_zone": "2026-07-01 12:00:00"',
    '"2026-03-29 02:30:00", "with_zone": "2026-03-29 02:30:00"',
)


@pytest.fixture(params=["Europe/Berlin", "Asia/Kolkata", "America/New_York", "+05:45", "UTC"])
def zone(request: pytest.FixtureRequest, session: AttachedSession) -> Iterator[str]:
    before = str(session.spark.conf.get(_ZONE))
    session.spark.conf.set(_ZONE, request.param)
    yield request.param
    session.spark.conf.set(_ZONE, before)


def test_rows_and_conditions_do_not_depend_on_the_zone(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, zone: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce(
        broker.bootstrap,
        topic_name,
        [
            Record(
                value=f'{{"id": {number}, "day": "2026-07-01", "plain": {text}}}'.encode(),
                partition=0,
                timestamp_ms=_WRITTEN_MS + 600_000 * number,
            )
            for number, text in enumerate(_TIMES)
        ],
    )
    session.sql(
        f"""CREATE SOURCE s (id INT, day DATE, plain TIMESTAMP, with_zone TIMESTAMP WITH TIME ZONE)
        INCLUDE timestamp AS at WITH (
            connector = 'kafka', topic = '{topic_name}', properties.bootstrap.server = '{broker.bootstrap}'
        ) FORMAT PLAIN ENCODE JSON"""
    )
    session.sql("CREATE MATERIALIZED VIEW v AS SELECT * FROM s")
    session.sql("FLUSH")
    columns = (
        "id, CAST(day AS STRING) AS day, CAST(plain AS STRING) AS plain, "
        "unix_micros(CAST(with_zone AS TIMESTAMP)) AS us, unix_micros(CAST(at AS TIMESTAMP)) AS at_us"
    )
    kept = session.sql(f"SELECT {columns} FROM v ORDER BY id")
    assert [row.id for row in kept] == list(range(len(_TIMES)))
    assert [row.at_us for row in kept] == [(_WRITTEN_MS + 600_000 * number) * 1000 for number in range(len(_TIMES))]
    assert session.sql(f"SELECT {columns} FROM s ORDER BY id") == kept
    for moment in ("2026-01-01 12:20:00Z", "2026-01-01 12:20:00", "2026-01-01 17:50:00", "2026-01-01 07:20:00"):
        for condition in (f"at >= TIMESTAMP '{moment}'", f"at = TIMESTAMP '{moment}'", f"at > '{moment}'"):
            found = session.sql(f"SELECT id FROM s WHERE {condition} ORDER BY id")
            assert found == session.sql(f"SELECT id FROM v WHERE {condition} ORDER BY id"), (zone, condition)
