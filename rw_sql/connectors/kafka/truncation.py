"""Uses the epochs of partitions' leaders to find partitions whose log lost records (Kafka's KIP-320).

Each leader of a partition has an epoch, which is stored with the records that the leader writes. If a leader was
elected although it lacked records (an unclean election), or if a leader's disk lost records, the leader writes
different records at the offsets of the lost records. For an earlier epoch, a broker reports the offset at which the
records of this epoch end at present. If the reader's position in that epoch is higher than this offset, the log no
longer contains the last records that the reader has read.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from rw_sql.connectors.kafka.admin import BrokerError
from rw_sql.connectors.kafka.client_pool import ClientPool
from rw_sql.connectors.kafka.groups import is_refused_group
from rw_sql.connectors.kafka.peek import close_consumer, make_consumer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Consumer, Message

Part = tuple[str, int]

_TRUNCATED = re.compile(r"truncation detected .*broker end offset is (\d+)")
"""Matches the text of librdkafka's error for a truncated log. The error contains the offset at which the leader epoch
ends only in this text."""

_POLL_SECONDS = 0.05
_RETRY_SECONDS = 0.02


def diverged(
    properties: Mapping[str, str], positions: Mapping[Part, tuple[int, int]], *, timeout: float
) -> dict[Part, int]:
    """The partitions whose log has lost records before the position. In such a log, the records of the position's epoch
    end before the position.

    ``positions`` maps each partition to the next offset to read, and to a leader epoch during which the log contained
    the record before that offset. The result maps a partition to the first offset whose record was lost. Partitions
    whose brokers cannot compare epochs are omitted. Raises BrokerError if the brokers do not respond within ``timeout``
    seconds.
    """
    return (
        _CONSUMERS.with_client(properties, lambda consumer: _check(consumer, positions, timeout)) if positions else {}
    )


def _check(consumer: Consumer, positions: Mapping[Part, tuple[int, int]], timeout: float) -> dict[Part, int]:
    import confluent_kafka as ck

    deadline = time.monotonic() + timeout
    found: dict[Part, int] = {}
    try:
        for topic in {topic for topic, _ in positions}:
            consumer.list_topics(topic, timeout=timeout)
        consumer.assign([ck.TopicPartition(*part, offset) for part, (offset, _) in positions.items()])
        # Only a seek makes librdkafka compare epochs. After the seek, librdkafka returns no records that it fetched
        # earlier.
        for part, (offset, epoch) in positions.items():
            _seek(consumer, ck.TopicPartition(*part, offset, leader_epoch=epoch), deadline)
        waiting = set(positions)
        while waiting:
            if time.monotonic() > deadline:
                raise BrokerError(f"no answer within {timeout:g} s")
            message = consumer.poll(_POLL_SECONDS)
            if message is not None:
                _note(message, waiting, found)
        consumer.unassign()
    except ck.KafkaException as error:
        raise BrokerError(str(error)) from error
    return found


def _seek(consumer: Consumer, target: object, deadline: float) -> None:
    """Waits until the assignment of the partition has taken effect, and then moves the consumer to an offset of the
    partition."""
    import confluent_kafka as ck

    while True:
        try:
            consumer.seek(target)  # type: ignore[arg-type]  # the stub lacks the type of a variable
        except ck.KafkaException as error:
            if error.args[0].code() != ck.KafkaError._STATE or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return


def _note(message: Message, waiting: set[Part], found: dict[Part, int]) -> None:
    """Evaluates a message, and removes its partition from ``waiting``. If the message is the error about a truncated
    log, stores the first lost offset in ``found``. A record or the end of the partition shows that the log has lost no
    records before the position."""
    import confluent_kafka as ck

    part, fault = (str(message.topic()), int(message.partition() or 0)), message.error()
    if fault is not None and fault.code() in (ck.KafkaError._ALL_BROKERS_DOWN, ck.KafkaError._TRANSPORT):
        return  # librdkafka retries the request.
    if is_refused_group(fault):
        return
    if fault is not None and (cut := _TRUNCATED.search(fault.str())) is not None and part in waiting:
        found[part] = int(cut[1])
    # Any other error concerns the position, for example a removed offset; the reader reports the error when the reader
    # starts again.
    waiting.discard(part)


def _consumer(properties: Mapping[str, str]) -> Consumer:
    # Without "error", the consumer would silently continue at the end of the epoch's records.
    return make_consumer({**properties, "auto.offset.reset": "error"})


_CONSUMERS: ClientPool[Consumer] = ClientPool(_consumer, close_consumer)
