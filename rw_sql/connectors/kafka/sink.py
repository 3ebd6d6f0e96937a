"""The Kafka sink. It writes rows, in their order, as JSON, Avro or Protobuf records. If the sink has a primary key, the
key of each record is the row's primary key.

The sink delivers each record at least once.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS, missing_hint
from rw_sql.connectors.kafka import admin as kafka_admin
from rw_sql.connectors.kafka import client_pool as kafka_visits
from rw_sql.connectors.kafka import properties as kafka_properties
from rw_sql.connectors.kafka.schema_registry_records import RegisteredRecords, RegisteredSchemas, has_registry
from rw_sql.connectors.kafka.schema_registry_records import look as look_at_registry
from rw_sql.connectors.kafka.source import check_brokers, check_topics, topics_of
from rw_sql.connectors.sink import (
    APPEND_ONLY,
    DEBEZIUM,
    DELETE,
    INSERT,
    OP,
    UPDATE,
    UPDATE_BEFORE,
    Refusal,
    RefusedRowsError,
    SinkError,
    SinkLook,
    TargetUnfitError,
)
from rw_sql.connectors.spec import OptionError, check_option_values, load_sink_spec, load_spec
from rw_sql.connectors.support.debezium_json import change_record
from rw_sql.connectors.support.sink_values import (
    json_rows,
    plain_keys,
    to_json,
    without_deleted_values,
    without_unreadable_old_values,
)
from rw_sql.errors import INVALID_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow as pa

    from rw_sql.connectors.sink import SinkShape
    from rw_sql.connectors.spec import ConnectorSpec

_POLL_SECONDS = 0.05
_POLL_EVERY = 1000
_CLIENT_LIMIT = "properties.message.max.bytes"
_CLIENT_LIMIT_DEFAULT, _CLIENT_LIMIT_MOST = 1_000_000, 1_000_000_000
_TOGETHER_DEFAULT = 1_000_000
"""librdkafka's default value of ``batch.size``, the maximum size in bytes of records that are sent together."""

_TOGETHER_MOST = "batch.num.messages"
"""The property with the maximum number of records that are sent together."""

_FRAME_BYTES = 200
"""An upper bound for the number of bytes that a request contains in addition to its records."""

_Record = tuple[bytes | None, bytes | None]


class KafkaSink:
    """See :class:`rw_sql.connectors.sink.SinkConnector`."""

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/kafka.sink.toml``."""
        return load_sink_spec("kafka")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent. Contacts no broker."""
        check_option_values(self.spec, options)
        check_brokers(options)
        check_topics(options)
        if len(topics_of(options)) != 1:
            raise OptionError(
                INVALID_PROPERTY,
                'property "topic" of a sink must name one topic',
                key="topic",
                hint="create a sink for each topic",
            )
        kafka_properties.check_security(options)
        self._check_idempotence(options)

    def _check_idempotence(self, options: Mapping[str, str]) -> None:
        """Raises OptionError if an option conflicts with librdkafka's idempotent producer while this producer is
        enabled. With such an option, records could be reordered or lost."""
        if (self.spec.value(options, "properties.enable.idempotence") or "").lower() != "true":
            return
        bounds = (
            ("properties.request.required.acks", -1, -1),
            ("properties.max.in.flight.requests.per.connection", 1, 5),
            ("properties.message.send.max.retries", 1, None),
        )
        for key, low, high in bounds:
            if key in options and not low <= int(options[key]) <= (int(options[key]) if high is None else high):
                raise OptionError(
                    INVALID_PROPERTY,
                    f"property \"{key}\" = '{options[key]}' contradicts properties.enable.idempotence",
                    key=key,
                    hint=f"omit {key}, or set properties.enable.idempotence to false",
                )

    def check_shape(self, options: Mapping[str, str], shape: SinkShape) -> None:
        """Checks that an encoding with a schema registry can represent the columns. Otherwise checks nothing, because
        every type can be written as JSON. Raises SqlError."""
        if has_registry(shape):
            RegisteredSchemas.of(shape, *topics_of(options))

    def look(
        self, options: Mapping[str, str], shape: SinkShape | None, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SinkLook:
        """Checks that the brokers respond, that the topic exists, and that this user has the permission to write to it.
        If ``shape`` is given, also checks that a compacted topic gets keys, and that the schema registry accepts the
        schemas."""
        # check_options sees no values of secrets.
        if (misfit := kafka_properties.login_misfit(options)) is not None:
            return SinkLook(error=misfit.message, refused_key=misfit.key, hint=misfit.hint)
        try:

            def ask(admin: kafka_admin.BrokerAdmin) -> tuple[dict[str, kafka_admin.TopicView], str, tuple[str, ...]]:
                _, found, missing = admin.describe(topics_of(options))
                return (found, missing[0], admin.topic_names()) if missing else (found, "", ())

            found, missing, present = kafka_visits.with_client(
                kafka_properties.admin_properties(load_spec("kafka"), options),
                ask,
                timeout=kafka_properties.call_timeout(self.spec, options, timeout),
            )
        except kafka_admin.BrokerError as error:
            return SinkLook(error=str(error))
        if missing:
            return SinkLook(missing=f'topic "{missing}"', hint=missing_hint(missing, present), named=missing)
        refused = [topic for topic, view in found.items() if not view.is_writable]
        if refused:
            return SinkLook(
                misfit=f'the user may not write to topic "{refused[0]}"',
                hint=f'grant the user WRITE on topic "{refused[0]}"',
            )
        if shape is not None and not shape.keys and _is_compacted(self.spec, options):
            return SinkLook(misfit=_needs_keys(options), hint="primary_key = '…' in WITH names the columns of the key")
        if shape is not None and has_registry(shape):
            return look_at_registry(options, shape, *topics_of(options))
        return SinkLook()

    def open(self, options: Mapping[str, str], shape: SinkShape, identity: str) -> KafkaWriter:
        """Opens a producer. Raises SinkError."""
        return KafkaWriter(self.spec, options, shape, _most_bytes(self.spec, options))


def _most_bytes(spec: ConnectorSpec, options: Mapping[str, str]) -> int | None:
    """The topic's ``max.message.bytes``; None if the brokers do not report it."""
    found = _topic_setting(spec, options, "max.message.bytes")
    return int(found) if found is not None and found.isdecimal() else None


def _is_compacted(spec: ConnectorSpec, options: Mapping[str, str]) -> bool:
    """True if the topic is compacted, which means that it keeps the last record of each key. Brokers refuse records
    without a key for such a topic. False if the brokers do not report the setting."""
    return "compact" in (_topic_setting(spec, options, "cleanup.policy") or "")


def _needs_keys(options: Mapping[str, str]) -> str:
    (topic,) = topics_of(options)
    return f'topic "{topic}" is compacted, so its records need a key, and this sink has no primary key'


def _topic_setting(spec: ConnectorSpec, options: Mapping[str, str], name: str) -> str | None:
    """A setting of the topic; None if the brokers do not report it, for example because the user lacks the permission
    to read it."""
    (topic,) = topics_of(options)

    def ask(admin: kafka_admin.BrokerAdmin) -> str | None:
        module = kafka_admin.admin_module()
        of = module.ConfigResource(module.ConfigResource.Type.TOPIC, topic)
        told = admin.ask(lambda client, left: client.describe_configs([of], request_timeout=left)[of])
        found = told.get(name)
        return None if found is None else str(found.value)

    try:
        return kafka_visits.with_client(
            kafka_properties.admin_properties(load_spec("kafka"), options),
            ask,
            timeout=kafka_properties.call_timeout(spec, options, RESOLVE_TIMEOUT_SECONDS),
        )
    except kafka_admin.BrokerError:
        return None


def records(rows: pa.Table, shape: SinkShape, *, now_ms: int) -> Iterator[_Record]:
    """The records (key, value) of a batch, in the order of its rows."""
    for _, record in numbered_records(rows, shape, now_ms=now_ms):
        yield record


def numbered_records(
    rows: pa.Table, shape: SinkShape, *, now_ms: int, without_old: Collection[int] = ()
) -> Iterator[tuple[int, _Record]]:
    """The records of a batch, each with the index of its row. Raises RefusedRowsError.

    ``without_old`` are the indexes of rows whose Debezium records omit the old row: an update becomes a create event,
    and a delete event has only the key.
    """
    if shape.type == DEBEZIUM:
        yield from _debezium(shape, rows, now_ms, without_old)
        return
    columns = list(shape.columns)
    operations = rows.column(OP).to_pylist()
    keys: Iterator[bytes | None]
    if shape.key_encode is not None:
        keys = iter(plain_keys(rows, shape.keys[0]))
    else:
        keys = (to_json(key) if shape.keys else None for key in json_rows(rows, shape.keys))
    values = json_rows(without_deleted_values(rows, shape.keys), columns)
    for index, (operation, key, value) in enumerate(zip(operations, keys, values, strict=True)):
        if operation == UPDATE_BEFORE or (operation == DELETE and shape.type == APPEND_ONLY):
            continue
        yield index, (key, None if operation == DELETE else to_json(value))


def _debezium(
    shape: SinkShape, rows: pa.Table, now_ms: int, without_old: Collection[int]
) -> Iterator[tuple[int, _Record]]:
    unreadable: frozenset[int] = frozenset()
    try:
        values = list(json_rows(rows, list(shape.columns)))
    except RefusedRowsError:
        # The topic lacks these old rows, because the sink has refused them.
        rows, unreadable = without_unreadable_old_values(rows, shape.keys)
        values = list(json_rows(rows, list(shape.columns)))
    before: dict[str, dict[str, Any]] = {}
    for index, (operation, value) in enumerate(zip(rows.column(OP).to_pylist(), values, strict=True)):
        if operation == UPDATE_BEFORE and index in unreadable:
            continue
        identity = json.dumps([value[key] for key in shape.keys])
        if operation == UPDATE_BEFORE:
            before[identity] = value
            continue
        old = before.pop(identity, None)
        if index in without_old:
            old = None
            if operation == DELETE:
                value = {name: each if name in shape.keys else None for name, each in value.items()}
        op = INSERT if operation == UPDATE and old is None else operation
        key, record = change_record(shape, op, old, value, now_ms)
        yield index, (to_json(key), to_json(record))
        if operation == DELETE:
            yield index, (to_json(key), None)


class KafkaWriter:
    """See :class:`rw_sql.connectors.sink.SinkWriter`."""

    def __init__(
        self, spec: ConnectorSpec, options: Mapping[str, str], shape: SinkShape, most_bytes: int | None = None
    ) -> None:
        """``most_bytes`` is the topic's ``max.message.bytes``, which limits the size of records that are sent together.
        None if the limit is not known."""
        from confluent_kafka import KafkaError, KafkaException

        self._shape = shape
        self._most_bytes = most_bytes
        self._limit = int(spec.value(options, _CLIENT_LIMIT) or _CLIENT_LIMIT_DEFAULT)
        self._spec = spec
        self._options = options
        self._too_large = KafkaError.MSG_SIZE_TOO_LARGE
        self._invalid = (KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP)
        self._sent_with_invalid = KafkaError._INVALID_DIFFERENT_RECORD
        self._refused: dict[int, str] = {}
        self._large: set[int] = set()
        self._unsent: set[int] = set()
        (self._topic,) = topics_of(options)
        self._registered = RegisteredRecords(options, shape, self._topic) if has_registry(shape) else None
        self._fault: str | None = None
        self._is_cancelled = False
        self._failure = KafkaException
        self._properties: dict[str, Any] = {
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
            **kafka_properties.producer_properties(spec, options),
            # partitions keys as the Java client does
            "partitioner": "murmur2_random",
            "log_level": 0,
            "error_cb": self._note,
        }
        self._producer: Any = self._opened()

    def _opened(self, *, is_each_alone: bool = False) -> Any:
        """A producer. If ``is_each_alone`` is true, the producer sends each record in a separate request."""
        from confluent_kafka import KafkaException, Producer

        made: Any = Producer
        properties = dict(self._properties)
        if self._most_bytes is not None:
            most = min(int(properties.get("batch.size", _TOGETHER_DEFAULT)), self._most_bytes - _FRAME_BYTES)
            properties["batch.size"] = max(1, most)
        if is_each_alone:
            properties[_TOGETHER_MOST] = 1
        try:
            return made(properties, logger=kafka_admin.QUIET)
        except (KafkaException, ValueError, TypeError) as error:
            raise SinkError(kafka_admin.fault_text(error)) from error

    def fence(self, run: int, generation: int) -> int | None:
        """Returns None: a topic stores no batch numbers."""
        return None

    def write(self, rows: pa.Table, batch: int) -> None:
        """Writes the records; returns after the brokers have acknowledged all of them."""
        now_ms = int(time.time() * 1000)
        made = self._made(rows, now_ms)
        # An old row may be large because the sink has refused it. Such an old row must not prevent the write of the
        # corrected row.
        large = {index for index, record in made if _size(record) > self._limit}
        if large and self._shape.type == DEBEZIUM:
            made = self._made(rows, now_ms, without_old=large)
        # The sizes are checked before sending. Otherwise, earlier records would be duplicated when the batch is written
        # again.
        self._require_small(made)
        self._send_each(made)
        if self._large and self._shape.type == DEBEZIUM:
            smaller = self._made(rows, now_ms, without_old=large | self._large)
            if smaller != made:
                self._send_each(smaller)
        if self._refused.keys() - self._large and not self._shape.keys and _is_compacted(self._spec, self._options):
            raise TargetUnfitError(_needs_keys(self._options))
        if self._refused:
            told = [
                Refusal(index=index, reason=reason, hint=self._topic_hint() if index in self._large else None)
                for index, reason in sorted(self._refused.items())
            ]
            raise RefusedRowsError(told, is_rest_written=True)

    def accepts_parts(self) -> bool:
        """See :class:`rw_sql.runtime.sinks.part_writer.PartWriter`."""
        return True

    def write_part(self, rows: pa.Table, batch: int) -> None:
        """See :class:`rw_sql.runtime.sinks.part_writer.PartWriter`."""
        self.write(rows, batch)

    def _made(self, rows: pa.Table, now_ms: int, *, without_old: Collection[int] = ()) -> list[tuple[int, _Record]]:
        """The records of a batch. See :func:`numbered_records`."""
        if self._registered is not None:
            return list(self._registered.numbered(rows))
        return list(numbered_records(rows, self._shape, now_ms=now_ms, without_old=without_old))

    def _send_each(self, made: list[tuple[int, _Record]]) -> None:
        """Sends records. If brokers may have refused records only because of other records in the same request, sends
        all records again, each in a separate request. Brokers then refuse only records that are themselves too large or
        invalid."""
        self._send(made)
        if self._were_refused_together(made):
            # Sends all records again. If only the refused records were sent, the records of a key would not stay in
            # order.
            self._producer = self._opened(is_each_alone=True)
            self._send(made)
            # The records of the next batches are sent together again, because these batches may contain only valid
            # records. The limit may have changed since the writer was opened.
            self._most_bytes = _most_bytes(self._spec, self._options)
            self._producer = self._opened()

    def _were_refused_together(self, made: list[tuple[int, _Record]]) -> bool:
        """True if the brokers may have refused valid records only because they were sent together with a record that is
        too large or invalid. Brokers refuse all records that were sent together with such a record."""
        if not (self._refused or self._unsent) or str(self._properties.get(_TOGETHER_MOST)) == "1":
            return False
        limit = self._most_bytes
        return bool(self._unsent) or any(
            index in self._large and (limit is None or _size(record) <= limit) for index, record in made
        )

    def _send(self, made: list[tuple[int, _Record]]) -> None:
        """Sends records and waits until the brokers have acknowledged or refused each record."""
        self._refused, self._large, self._unsent = {}, set(), set()
        for count, (index, (key, value)) in enumerate(made, start=1):
            self._put(index, key, value)
            if count % _POLL_EVERY == 0:
                self._producer.poll(0)
                self._require_good()
        while self._producer.flush(_POLL_SECONDS):
            self._require_good()
        self._require_good()

    def _require_small(self, made: list[tuple[int, _Record]]) -> None:
        """Raises RefusedRowsError for records that exceed the client's size limit."""
        large = {index: size for index, record in made if (size := _size(record)) > self._limit}
        if large:
            hint = f"{_CLIENT_LIMIT} = '{min(2 * max(large.values()), _CLIENT_LIMIT_MOST)}'"
            raise RefusedRowsError(
                [
                    Refusal(
                        index=index,
                        reason=f"its record of {size} bytes is larger than this sink's own limit, "
                        f"{_CLIENT_LIMIT} = {self._limit}",
                        hint=f"CONNECTOR WITH ({hint})",
                    )
                    for index, size in large.items()
                ]
            )

    def _topic_hint(self) -> str:
        return f"raise max.message.bytes of topic {self._topic} with Kafka's own tools"

    def _put(self, index: int, key: bytes | None, value: bytes | None) -> None:
        def delivered(error: Any, _message: Any) -> None:
            if error is None:
                return
            if error.code() == self._too_large:
                self._large.add(index)
                self._refused[index] = (
                    f"its record of {_size((key, value))} bytes is larger than the brokers accept: the limit is "
                    f'max.message.bytes of topic "{self._topic}", or message.max.bytes of the brokers'
                )
            elif error.code() in self._invalid:
                self._refused[index] = f'topic "{self._topic}" does not accept its record: {error.str()}'
            elif error.code() == self._sent_with_invalid:
                self._unsent.add(index)
            else:
                self._fault = self._fault or error.str()

        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=delivered)
            except BufferError:
                self._producer.poll(_POLL_SECONDS)
                self._require_good()
            except self._failure as error:
                raise SinkError(f'topic "{self._topic}": {kafka_admin.fault_text(error)}') from error
            else:
                return

    def _require_good(self) -> None:
        if self._is_cancelled:
            raise SinkError("stopped")
        if self._fault is not None:
            raise SinkError(f'topic "{self._topic}": {self._fault}')

    def _note(self, error: Any) -> None:
        if kafka_admin.is_fatal(error):
            self._fault = self._fault or error.str()

    def cancel(self) -> None:
        """Discards records that have not been sent to the brokers yet."""
        self._is_cancelled = True
        self._producer.purge()

    def close(self) -> None:
        """Closes the producer and discards unsent records."""
        self._is_cancelled = True
        self._producer.purge()
        self._producer.flush(1)


def _size(record: _Record) -> int:
    """The size of a record as librdkafka counts it: the bytes of its key and value."""
    return sum(len(part) for part in record if part is not None)
