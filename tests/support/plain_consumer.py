"""The offsets of a topic that have records, according to Kafka's own consumer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping


def bounds_of(bootstrap: str, topic: str) -> dict[int, tuple[int, int]]:
    """The present range of each partition, from the broker: its first offset and its end."""
    from rw_sql.connectors.kafka.client_pool import look

    found = look({"bootstrap.servers": bootstrap}, [topic], timeout=LAST_RESORT_SECONDS, is_read_committed=False)
    assert found.error is None, found.error
    return {int(split.rpartition(":")[2]): (seen.start, seen.end) for split, seen in found.splits.items()}


def offsets_of(bootstrap: str, topic: str, bounds: Mapping[int, tuple[int, int]] | None = None) -> dict[int, list[int]]:
    """The offsets that have records, by partition, without records of aborted transactions."""
    import confluent_kafka as ck

    bounds = bounds_of(bootstrap, topic) if bounds is None else bounds
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "plain",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    found: dict[int, list[int]] = {part: [] for part in bounds}
    consumer.assign([ck.TopicPartition(topic, part, start) for part, (start, _) in bounds.items()])
    waiting = set(bounds)
    deadline = time.monotonic() + LAST_RESORT_SECONDS
    while waiting:
        assert time.monotonic() < deadline
        for message in consumer.consume(1000, 0.1):
            part = int(message.partition() or 0)
            if message.error() is not None:
                waiting.discard(part)
            elif part in waiting:
                found[part].append(int(message.offset() or 0))
    consumer.close()
    return found
