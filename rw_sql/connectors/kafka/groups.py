"""Reads the committed offsets of a Kafka consumer group, and recognizes errors that concern only the group. The module
changes nothing in Kafka."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rw_sql.connectors.base import GroupOffsets
from rw_sql.connectors.kafka.admin import BrokerError
from rw_sql.connectors.kafka.client_pool import with_client

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka import KafkaError

    from rw_sql.connectors.kafka.admin import BrokerAdmin

GROUP = "rw_sql"
"""The consumer group of a consumer whose properties do not name a group."""


def is_refused_group(fault: KafkaError | None) -> bool:
    """True if the error means that a broker does not permit the consumer to use its consumer group.

    The client looks up the coordinator of its group even if it commits nothing and reads only assigned partitions. The
    error does not affect the reading of the partitions, so their records still arrive.
    """
    import confluent_kafka as ck

    return fault is not None and fault.code() == ck.KafkaError.GROUP_AUTHORIZATION_FAILED


def committed(
    properties: Mapping[str, str], group: str, partitions: Sequence[tuple[str, int]], *, timeout: float
) -> GroupOffsets:
    """The offsets that a group has committed for these partitions, and the group's current number of members.

    A committed offset is the offset of the next record that the group will read. If the group has committed no offset
    for these partitions, the result contains the names of all groups instead. Raises BrokerError.
    """
    return with_client(properties, partial(_ask, group=group, partitions=partitions), timeout=timeout)


def _ask(admin: BrokerAdmin, *, group: str, partitions: Sequence[tuple[str, int]]) -> GroupOffsets:
    import confluent_kafka as ck

    wanted = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(*part) for part in partitions])
    answer = admin.ask(lambda client, left: client.list_consumer_group_offsets([wanted], request_timeout=left)[group])
    for part in answer.topic_partitions:
        if part.error is not None:
            raise BrokerError(f"{part.topic}:{part.partition}: {part.error.str()}")
    offsets = {f"{part.topic}:{part.partition}": part.offset for part in answer.topic_partitions if part.offset >= 0}
    if not offsets:
        listed = admin.ask(lambda client, left: client.list_consumer_groups(request_timeout=left))
        return GroupOffsets(groups=tuple(sorted(found.group_id for found in listed.valid)))
    described = admin.ask(lambda client, left: client.describe_consumer_groups([group], request_timeout=left)[group])
    return GroupOffsets(offsets=offsets, members=len(described.members))
