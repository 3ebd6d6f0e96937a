"""Reads the ends of many partitions in one call of librdkafka.

In contrast, the administrative client creates a Python future for each partition and waits for each future. This takes
four times the CPU time of this module's call. However, only the administrative client reports why the end of a
partition is unknown, and which brokers do not respond.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING

from rw_sql.connectors.kafka.admin import BrokerError, has_answered
from rw_sql.connectors.kafka.client_pool import ClientPool
from rw_sql.connectors.kafka.peek import close_consumer, make_consumer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from confluent_kafka import Consumer

Part = tuple[str, int]

_END = -1
"""If a ListOffsets request contains this value as the time, the broker returns the end of the partition."""

_SECONDS = 1.0
"""The maximum wait for a response in seconds. If a broker takes longer, the administrative client repeats the
request."""

_MOST_ASKED = 4
"""The maximum number of topics that are looked up again after a call has reported them missing. Each topic takes a
separate request. If more topics are missing, the call chooses this number of them at random."""


def quick_ends(
    properties: Mapping[str, str], partitions: Collection[Part], *, timeout: float, is_read_committed: bool
) -> dict[Part, int] | None:
    """The ends of the partitions. The result omits partitions that do not exist, and partitions that the user lacks the
    permission to read.

    Returns None if the brokers do not respond within a second, or if they report an error that does not mean a missing
    partition or permission. The caller then reads the ends with the administrative client.
    """
    level = "read_committed" if is_read_committed else "read_uncommitted"
    try:
        return _CONSUMERS.with_client(
            {**properties, "isolation.level": level},
            lambda consumer: _ends(consumer, partitions, min(timeout, _SECONDS)),
        )
    except BrokerError:
        return None


def _ends(consumer: Consumer, partitions: Collection[Part], timeout: float) -> dict[Part, int]:
    import confluent_kafka as ck

    try:
        answers = consumer.offsets_for_times([ck.TopicPartition(*part, _END) for part in partitions], timeout)
    except ck.KafkaException as error:
        raise BrokerError(str(error)) from error
    found: dict[Part, int] = {}
    missing: set[str] = set()
    for answer in answers:
        if answer.error is None and answer.offset >= 0:
            found[answer.topic, answer.partition] = answer.offset
        elif answer.error is None or not has_answered(answer.error):
            raise BrokerError(f"{answer.topic}:{answer.partition}: {answer.error}")
        else:
            missing.add(answer.topic)
    with suppress(ck.KafkaException):
        for topic in random.sample(sorted(missing), min(len(missing), _MOST_ASKED)):
            # Without this request, librdkafka would continue to report that the topic does not exist, even after the
            # topic was created, until the client is closed.
            consumer.list_topics(topic, timeout=timeout)
    return found


_CONSUMERS: ClientPool[Consumer] = ClientPool(make_consumer, close_consumer)
