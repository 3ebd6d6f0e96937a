"""A source ``s`` of the topic ``orders``, and a view ``m`` over the source. A test cuts the topic's log on the
broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.cli.servers.kafka_topics import create_topic
from tests.integration.attached import produce_json

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession


def create(session: AttachedSession, broker: BrokerInfo, *, is_shared: bool = True, has_topic: bool = False) -> None:
    session.allow_unsafe()
    if not has_topic:
        create_topic(broker.bootstrap, "orders", 1)
    session.run(
        f"""CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = 'orders', shared = '{str(is_shared).lower()}',
        properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON""",
        "CREATE MATERIALIZED VIEW m AS SELECT id FROM s",
    )


def put(broker: BrokerInfo, first: int, last: int) -> None:
    produce_json(broker.bootstrap, "orders", [{"id": id_} for id_ in range(first, last)])


def has_diverged(session: AttachedSession, job: str) -> bool:
    return "DIVERGED" in session.job(job).reason


def ids(session: AttachedSession) -> list[int]:
    return sorted(id_ for (id_,) in session.flushed_rows_of("m"))
