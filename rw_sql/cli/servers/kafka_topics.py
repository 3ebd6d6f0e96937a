"""Creates, deletes, extends and lists the topics of a development broker, and writes records to the topics."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.errors import DUPLICATE_OBJECT, UPSTREAM_MISSING, UPSTREAM_UNREACHABLE, SqlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record to produce.

    If ``partition`` is None, the key's hash determines the partition. If ``timestamp_ms`` is None, the record gets the
    current time.
    """

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic, with its number of partitions. ``records`` is the number of offsets between the first and the end offset
    of each partition, in all partitions together."""

    name: str
    id: str
    partitions: int
    records: int


def answering_cluster(bootstrap: str, seconds: float) -> str | None:
    """The id of the cluster that responds at an address within the time limit; None if no cluster responds."""
    from confluent_kafka import KafkaException

    # The client must not be garbage-collected, because its requests would then never get a response.
    admin = _admin(bootstrap)
    try:
        cluster = admin.describe_cluster(request_timeout=seconds).result(seconds + 1)
    except (KafkaException, TimeoutError):
        return None
    return cluster.cluster_id if cluster.nodes else None


def create_topic(bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    """Creates a topic, and returns when every partition has a leader. Raises SqlError DUPLICATE_OBJECT."""
    from rw_sql.connectors.kafka.admin import admin_module

    admin = _admin(bootstrap)
    first = min(partitions, 4000)  # the broker refuses a request for more partitions at once
    _done(
        admin.create_topics(
            [admin_module().NewTopic(name, first, 1, config=dict(config or {}))], request_timeout=_SECONDS
        )[name],
        name,
    )
    for size in range(first + 2000, partitions + 2000, 2000):
        _grow(admin, name, min(size, partitions))
    _wait(
        lambda: _led_partitions(admin, name) == partitions,
        f'topic "{name}" has partitions without a leader',
        seconds=_SECONDS + partitions / 50,
    )


def delete_topic(bootstrap: str, name: str) -> None:
    """Deletes a topic, and returns when the topic no longer exists. Raises SqlError UPSTREAM_MISSING."""
    admin = _admin(bootstrap)
    _done(admin.delete_topics([name], request_timeout=_SECONDS)[name], name)
    _wait(lambda: _led_partitions(admin, name) is None, f'topic "{name}" still exists')


def add_partitions(bootstrap: str, name: str, total: int) -> None:
    """Extends a topic to ``total`` partitions and returns when all partitions have leaders."""
    admin = _admin(bootstrap)
    _grow(admin, name, total)
    _wait(lambda: _led_partitions(admin, name) == total, f'topic "{name}" has partitions without a leader')


def delete_records(bootstrap: str, name: str, before: Mapping[int, int]) -> None:
    """Removes the records below a given offset of each partition, as retention would."""
    from confluent_kafka import TopicPartition

    admin = _admin(bootstrap)
    asked = admin.delete_records([TopicPartition(name, part, offset) for part, offset in before.items()])
    for future in asked.values():
        _done(future, name)


def partition_count(bootstrap: str, name: str) -> int | None:
    """The number of a topic's partitions; None if there is no such topic."""
    return _led_partitions(_admin(bootstrap), name)


def topics(bootstrap: str) -> list[TopicInfo]:
    """The topics of a broker, except internal ones, sorted by name."""
    from rw_sql.connectors.kafka.admin import EARLIEST, LATEST, BrokerAdmin, BrokerError

    names = [name for name in _admin(bootstrap).list_topics(timeout=_SECONDS).topics if not name.startswith("__")]
    if not names:
        return []
    try:
        with BrokerAdmin({"bootstrap.servers": bootstrap}, timeout=_SECONDS) as admin:
            _, found, _ = admin.describe(names)
            starts, ends = admin.offsets(
                [(name, part) for name, view in found.items() for part in view.partitions], EARLIEST, LATEST
            )
    except BrokerError as error:
        raise SqlError(
            UPSTREAM_UNREACHABLE,
            f"the broker does not answer: {error}",
            hint=f"start a broker at {bootstrap}, or give its address: --broker HOST:PORT",
        ) from error
    return [
        TopicInfo(
            name=name,
            id=view.id or "",
            partitions=len(view.partitions),
            records=sum(ends[name, part] - starts[name, part] for part in view.partitions),
        )
        for name, view in sorted(found.items())
    ]


def produce(bootstrap: str, topic: str, records: Iterable[Record | bytes | str]) -> int:
    """Writes records to a topic, waits until the broker has acknowledged all records, and returns the number of
    records.

    Records of one partition keep their order. Raises SqlError UPSTREAM_MISSING for a topic that does not exist.
    """
    from confluent_kafka import KafkaException, Producer

    if partition_count(bootstrap, topic) is None:
        raise SqlError(
            UPSTREAM_MISSING, f'topic "{topic}" does not exist', hint=f"rw-sql dev kafka topics --create {topic}"
        )
    faults: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            faults.append(error.str())

    made: Any = Producer
    producer = made(
        {
            "bootstrap.servers": bootstrap,
            # An idempotent producer would wait half a second for its id. Sending one request at a time also keeps the
            # order.
            "max.in.flight.requests.per.connection": 1,
            "linger.ms": 5,
            # the partitioner of the Java client
            "partitioner": "murmur2_random",
            "message.timeout.ms": int(_SECONDS * 1000),
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
            "error_cb": lambda error: None,
        }
    )
    count = 0
    for record in records:
        given = (
            record
            if isinstance(record, Record)
            else Record(value=record.encode() if isinstance(record, str) else record)
        )
        placed: dict[str, Any] = {} if given.partition is None else {"partition": given.partition}
        if given.timestamp_ms is not None:
            placed["timestamp"] = given.timestamp_ms
        if given.headers:
            placed["headers"] = list(given.headers)
        while True:
            try:
                producer.produce(topic, given.value, given.key, on_delivery=delivered, **placed)
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                raise _error(error, topic) from error
            else:
                break
        count += 1
        if count % 1000 == 0:
            producer.poll(0)
    left = producer.flush(_SECONDS)
    if faults or left:
        raise SqlError(
            UPSTREAM_UNREACHABLE,
            f'{len(faults) + left} of {count} records did not reach topic "{topic}": {(faults or ["no answer"])[0]}',
            hint="run the command again: it sends all records again",
        )
    return count


def _admin(bootstrap: str) -> Any:
    from rw_sql.connectors.kafka.admin import admin_module

    return admin_module().AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda error: None})


def _grow(admin: Any, name: str, total: int) -> None:
    from rw_sql.connectors.kafka.admin import admin_module

    _done(admin.create_partitions([admin_module().NewPartitions(name, total)], request_timeout=_SECONDS)[name], name)


def _led_partitions(admin: Any, name: str) -> int | None:
    """The number of a topic's partitions that have a leader; None if there is no such topic."""
    from confluent_kafka import KafkaException, TopicCollection

    try:
        view = admin.describe_topics(TopicCollection([name]), request_timeout=_SECONDS)[name].result()
    except KafkaException as error:
        if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
            return None
        raise _error(error, name) from error
    return sum(1 for part in view.partitions if part.leader is not None and part.leader.id >= 0)


def _done(future: Any, name: str) -> None:
    from confluent_kafka import KafkaException

    try:
        future.result()
    except KafkaException as error:
        raise _error(error, name) from error


def _error(error: Exception, name: str) -> SqlError:
    fault = error.args[0]
    match fault.name():
        case "TOPIC_ALREADY_EXISTS":
            return SqlError(
                DUPLICATE_OBJECT, f'topic "{name}" already exists', hint="use another name, or write to this topic"
            )
        case "UNKNOWN_TOPIC_OR_PART" | "_UNKNOWN_TOPIC" | "_UNKNOWN_PARTITION":
            return SqlError(
                UPSTREAM_MISSING, f'topic "{name}" does not exist', hint="rw-sql dev kafka topics lists the topics"
            )
        case _:
            return SqlError(
                UPSTREAM_UNREACHABLE,
                f'topic "{name}": {fault.str()}',
                hint="run the command again once the broker answers",
            )


def _wait(is_met: Callable[[], bool], failure: str, seconds: float = _SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while True:
        asked = time.monotonic()
        if is_met():
            return
        answered = time.monotonic()
        if answered > deadline:
            raise SqlError(
                UPSTREAM_UNREACHABLE,
                f"{failure} after {seconds:g} s",
                hint="run the command again once the broker answers",
            )
        time.sleep(max(0.02, answered - asked))  # the time that a busy broker may need for a request
