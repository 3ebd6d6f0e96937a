"""Reads single records of Kafka partitions, to tell what no metadata tells: holes between offsets, and records' times.

A topic's configuration tells of compaction. Nothing tells of transactions, but each of them ends in a marker, which
takes an offset and is no record: the last offsets of the partitions are read, and one that is no record gives it away.
A topic that was written in transactions once and not lately is not found out by that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rw_sql.connectors.kafka_admin import EARLIEST, LATEST, BrokerAdmin, BrokerError, admin_module

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka import Consumer

COMPACTED = "compacted"
TRANSACTIONAL = "transactional"

_PEEKED = 16
_MOST_PARTITIONS = 32
_PEEK_SECONDS = 3.0
# A call waits so long for as many messages as it may give, even where no more will come.
_POLL_SECONDS = 0.005
_MOST_TIMES = 64


def sparse_topics(properties: Mapping[str, str], topics: Sequence[str], *, timeout: float) -> dict[str, str]:
    """The topics of which offsets are no count of records, and why. Faults are a reason too, never raised."""
    try:
        with BrokerAdmin(properties, timeout=timeout, is_read_committed=False) as admin:
            _, found, _ = admin.describe(topics)
            sparse = {topic: COMPACTED for topic in found if _is_compacted(admin, topic)}
            parts = [
                (topic, number)
                for topic, view in found.items()
                if topic not in sparse
                for number in view.partitions[:_MOST_PARTITIONS]
            ]
            starts, ends = admin.offsets(parts, EARLIEST, LATEST)
    except BrokerError as error:
        return dict.fromkeys(topics, f"not known to hold a record at every offset: {error}")
    tails = {part: max(starts[part], ends[part] - _PEEKED) for part in parts if ends[part] > starts[part]}
    try:
        holes = _topics_with_holes(properties, tails, ends)
    except BrokerError as error:
        return {**dict.fromkeys(found, f"not known to hold a record at every offset: {error}"), **sparse}
    return {**sparse, **dict.fromkeys(holes, TRANSACTIONAL)}


def _is_compacted(admin: BrokerAdmin, topic: str) -> bool:
    module = admin_module()
    resource = module.ConfigResource(module.ConfigResource.Type.TOPIC, topic)
    answer = admin.ask(lambda client, left: client.describe_configs([resource], request_timeout=left)[resource])
    policy = answer.get("cleanup.policy")
    return policy is not None and "compact" in (policy.value or "")


def _topics_with_holes(
    properties: Mapping[str, str], tails: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int]
) -> set[str]:
    """The topics with an offset in ``[tails, ends)`` that is no record. Raises BrokerError."""
    import confluent_kafka as ck

    if not tails:
        return set()
    try:
        consumer = _consumer(properties)
    except ck.KafkaException as error:
        raise BrokerError(str(error)) from error
    try:
        consumer.assign([ck.TopicPartition(topic, number, at) for (topic, number), at in tails.items()])
        following = dict(tails)
        waiting = set(tails)
        holes: set[str] = set()
        deadline = time.monotonic() + _PEEK_SECONDS
        while waiting and time.monotonic() < deadline:
            for message in consumer.consume(500, _POLL_SECONDS):
                fault = message.error()
                part = (str(message.topic()), int(message.partition() or 0))
                if fault is not None and fault.code() != ck.KafkaError._PARTITION_EOF:
                    raise BrokerError(fault.str())
                at = int(message.offset() or 0)
                if part in waiting and min(at, ends[part]) > following[part]:
                    holes.add(part[0])
                following[part] = at + 1
                if fault is not None or at + 1 >= ends[part]:
                    waiting.discard(part)
            waiting = {part for part in waiting if part[0] not in holes}
        if waiting:
            raise BrokerError(f"no answer within {_PEEK_SECONDS:g} s")
        return holes
    except ck.KafkaException as error:
        raise BrokerError(str(error)) from error
    finally:
        consumer.close()


def _consumer(properties: Mapping[str, str]) -> Consumer:
    """A consumer of no group that tells where partitions end and takes as little as it can."""
    import confluent_kafka as ck

    return ck.Consumer(
        {
            **properties,
            "group.id": "rw_sql-peek",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "fetch.wait.max.ms": 20,
            "fetch.message.max.bytes": 16384,
            "queued.max.messages.kbytes": 1024,
            "log_level": 0,
        }
    )


def record_times(
    properties: Mapping[str, str], offsets: Mapping[tuple[str, int], int], *, timeout: float
) -> dict[tuple[str, int], int]:
    """When the first record at or after an offset was written, in milliseconds since 1970.

    Partitions that do not answer in time, or have no such record, are left out.
    """
    import confluent_kafka as ck

    listed = dict(list(offsets.items())[:_MOST_TIMES])
    if not listed:
        return {}
    try:
        consumer = _consumer(properties)
    except ck.KafkaException:
        return {}
    times: dict[tuple[str, int], int] = {}
    try:
        consumer.assign([ck.TopicPartition(topic, number, at) for (topic, number), at in listed.items()])
        waiting = set(listed)
        deadline = time.monotonic() + timeout
        while waiting and time.monotonic() < deadline:
            for message in consumer.consume(200, _POLL_SECONDS):
                part = (str(message.topic()), int(message.partition() or 0))
                if part not in waiting:
                    continue
                kind, written = message.timestamp()
                if message.error() is None and kind != ck.TIMESTAMP_NOT_AVAILABLE:
                    times[part] = written
                waiting.discard(part)
    except ck.KafkaException:
        return times
    finally:
        consumer.close()
    return times
