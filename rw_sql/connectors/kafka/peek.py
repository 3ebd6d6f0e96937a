"""Reads single records of Kafka partitions. The module thus finds the times of records, and offsets without a record.

Metadata shows whether a topic is compacted, but not whether it contains transactions. Each transaction ends with a
marker, which occupies an offset without a record. This module therefore reads the records at the last offsets of the
partitions; an offset without a record reveals a transaction. An open transaction, and a transaction whose markers the
brokers have not written yet, are detected because the last stable offset is less than the end. Completed transactions
that ended before these last offsets are not detected.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.kafka.admin import EARLIEST, LATEST, BrokerAdmin, BrokerError, admin_module
from rw_sql.connectors.kafka.client_pool import ClientPool, with_client
from rw_sql.connectors.kafka.groups import GROUP, is_refused_group
from rw_sql.connectors.kafka.spark_reader import known_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from confluent_kafka import Consumer, Message

COMPACTED = "compacted"
TRANSACTIONAL = "transactional"

_PEEKED = 16
_MOST_PARTITIONS = 32
_PEEK_SECONDS = 3.0
_POLL_SECONDS = 0.05
_MOST_TIMES = 64

Tails = dict[tuple[str, int], int]
Lives = dict[str, tuple[str | None, str | None]]
"""The cluster and the id of each topic. A cluster or id that the brokers do not report is None."""

_MOST_TOLD = 64
_TOLD: dict[tuple[frozenset[Any], ...], frozenset[str]] = {}
"""A cache of the topics in which offsets without records were found. The key consists of the ids and the offsets of all
topics of a request. The oldest entry comes first."""
_telling = threading.Lock()


def sparse_topics(properties: Mapping[str, str], topics: Sequence[str], *, timeout: float) -> dict[str, str]:
    """Returns the topics whose offsets do not count records, each with the reason. Errors are returned as a reason,
    never raised. Of each topic, only the first _MOST_PARTITIONS partitions are checked.

    ``properties`` are the properties of a consumer.
    """
    of_admin = {key: value for key, value in properties.items() if key != "group.id"}

    def ask(admin: BrokerAdmin) -> tuple[Lives, dict[str, str], Tails, Tails]:
        cluster, found, _ = admin.describe(topics)
        sparse = {topic: COMPACTED for topic in found if _is_compacted(admin, topic)}
        parts = [
            (topic, number)
            for topic, view in found.items()
            if topic not in sparse
            for number in view.partitions[:_MOST_PARTITIONS]
        ]
        starts, ends = admin.offsets(parts, EARLIEST, LATEST)
        admin.is_read_committed = True
        (stable,) = admin.offsets(parts, LATEST)
        sparse.update({part[0]: TRANSACTIONAL for part, end in ends.items() if stable[part] < end})
        return {topic: (cluster, view.id) for topic, view in found.items()}, sparse, starts, ends

    try:
        lives, sparse, starts, ends = with_client(of_admin, ask, timeout=timeout, is_read_committed=False)
    except BrokerError as error:
        return dict.fromkeys(topics, f"it is unknown whether every offset has a record: {error}")
    tails = {
        part: max(start, ends[part] - _PEEKED)
        for part, start in starts.items()
        if ends[part] > start and part[0] not in sparse
    }
    try:
        holes = _known_holes(properties, lives, tails, ends) if tails else frozenset()
    except BrokerError as error:
        return {**dict.fromkeys(lives, f"it is unknown whether every offset has a record: {error}"), **sparse}
    return {**sparse, **dict.fromkeys(holes, TRANSACTIONAL)}


def _known_holes(properties: Mapping[str, str], lives: Lives, tails: Tails, ends: Tails) -> frozenset[str]:
    """Returns the result of :func:`_topics_with_holes` from a cache, or calls the function and caches the result. The
    key of the cache consists of the identities and the offsets of the topics. If an identity is unknown, the result is
    not cached."""
    key = (frozenset(lives.items()), frozenset(tails.items()), frozenset(ends.items()))
    holes = _TOLD.get(key)
    if holes is None:
        holes = _CONSUMERS.with_client(properties, partial(_topics_with_holes, tails=tails, ends=ends))
        if all(cluster is not None and life is not None for cluster, life in lives.values()):
            with _telling:
                while len(_TOLD) >= _MOST_TOLD:
                    del _TOLD[next(iter(_TOLD))]
                _TOLD[key] = holes
    return holes


def _is_compacted(admin: BrokerAdmin, topic: str) -> bool:
    module = admin_module()
    resource = module.ConfigResource(module.ConfigResource.Type.TOPIC, topic)
    answer = admin.ask(lambda client, left: client.describe_configs([resource], request_timeout=left)[resource])
    policy = answer.get("cleanup.policy")
    return policy is not None and "compact" in (policy.value or "")


def _topics_with_holes(
    consumer: Consumer, tails: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int]
) -> frozenset[str]:
    """The topics with an offset in ``[tails, ends)`` that has no record. Raises BrokerError."""
    import confluent_kafka as ck

    following = dict(tails)
    waiting = set(tails)
    holes: set[str] = set()
    for message in _messages(consumer, tails, waiting, seconds=_PEEK_SECONDS):
        fault = message.error()
        part = (str(message.topic()), int(message.partition() or 0))
        if fault is not None and fault.code() != ck.KafkaError._PARTITION_EOF:
            raise BrokerError(fault.str())
        at = int(message.offset() or 0)
        if part in waiting and min(at, ends[part]) > following[part]:
            holes.add(part[0])
            waiting.difference_update([other for other in waiting if other[0] == part[0]])
        following[part] = at + 1
        if fault is not None or at + 1 >= ends[part]:
            waiting.discard(part)
    if waiting:
        raise BrokerError(f"no answer within {_PEEK_SECONDS:g} s")
    return frozenset(holes)


def _messages(
    consumer: Consumer, starts: Mapping[tuple[str, int], int], waiting: set[tuple[str, int]], *, seconds: float
) -> Iterator[Message]:
    """The messages of partitions from given offsets.

    The iteration ends when ``waiting`` is empty or the time limit is reached. The caller removes finished partitions
    from ``waiting``.

    Raises BrokerError.
    """
    import confluent_kafka as ck

    deadline = time.monotonic() + seconds
    try:
        # Without this request, a pooled client would look up the leaders of a new topic only after a second.
        for topic in {topic for topic, _ in starts}:
            consumer.list_topics(topic, timeout=seconds)
        consumer.assign([ck.TopicPartition(topic, number, at) for (topic, number), at in starts.items()])
        while waiting and time.monotonic() < deadline:
            # Requesting several messages would block until all have arrived or the time is over.
            first = consumer.poll(_POLL_SECONDS)
            found = () if first is None else (first, *consumer.consume(500, 0))
            yield from (message for message in found if not is_refused_group(message.error()))
        consumer.unassign()
    except ck.KafkaException as error:
        raise BrokerError(str(error)) from error


def make_consumer(properties: Mapping[str, str]) -> Consumer:
    """Makes a consumer that commits nothing, reports the ends of partitions, and fetches few bytes per request. The
    consumer group is GROUP, unless ``properties`` contains ``group.id``. Raises BrokerError."""
    import confluent_kafka as ck

    try:
        return ck.Consumer(
            {
                "isolation.level": "read_uncommitted",
                "group.id": GROUP,
                **properties,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 5,
                "fetch.message.max.bytes": 16384,
                "queued.max.messages.kbytes": 1024,
                "log_level": 0,
            }
        )
    except ck.KafkaException as error:
        raise BrokerError(str(error)) from error


def close_consumer(consumer: Consumer) -> None:
    """Closes a consumer."""
    consumer.close()


_CONSUMERS: ClientPool[Consumer] = ClientPool(make_consumer, close_consumer)


def record_times(
    properties: Mapping[str, str], offsets: Mapping[tuple[str, int], int], *, timeout: float
) -> dict[tuple[str, int], int]:
    """The write time of the first record at or after each partition's offset, in milliseconds since 1970.

    The result omits partitions without such a record, partitions whose brokers do not respond in time, and all
    partitions after the first _MOST_TIMES.
    """
    import confluent_kafka as ck

    listed = dict(list(offsets.items())[:_MOST_TIMES])
    times: dict[tuple[str, int], int] = {}

    def ask(consumer: Consumer) -> None:
        waiting = set(listed) - set(times)
        for message in _messages(consumer, listed, waiting, seconds=timeout):
            part = (str(message.topic()), int(message.partition() or 0))
            if part not in waiting:
                continue
            kind, written = message.timestamp()
            at = known_time(written)
            if message.error() is None and kind != ck.TIMESTAMP_NOT_AVAILABLE and at is not None:
                times[part] = at
            waiting.discard(part)

    if listed:
        with suppress(BrokerError):
            _CONSUMERS.with_client(properties, ask)
    return times
