"""Reads clusters, topics and offsets from Kafka brokers through librdkafka. Every call has a deadline."""

from __future__ import annotations

import logging
import re
import time
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from types import TracebackType

K = TypeVar("K")
V = TypeVar("V")

Answers: TypeAlias = "tuple[dict[K, V], dict[K, str]]"
"""The results of one request for many topics or partitions, and the error messages for those without a result."""

REFUSED_GRACE_SECONDS = 3.0
"""Requests are retried for this number of seconds while all brokers refuse connections, as restarting brokers do."""

_CONNECTING = {"reconnect.backoff.max.ms": 1000}
"""Without this limit, a client may wait 10 seconds before it tries again to connect to restarted brokers."""

_RETRY_SECONDS = 0.1
_LOOK_SECONDS = 0.005
QUIET = logging.getLogger("rw_sql.connectors.kafka.librdkafka")
QUIET.addHandler(logging.NullHandler())
# librdkafka logs every lost connection. The log is discarded: the caller's error contains the relevant part.
QUIET.propagate = False

_NO_TLS_THERE = re.compile(
    "connecting to a PLAINTEXT broker listener|(Disconnected|transport error).* in state SSL_HANDSHAKE"
)
"""librdkafka's messages if the server closes the connection during the TLS handshake. Such a message suggests that the
port does not use TLS."""

_ANY_OPERATION = frozenset({"ALL", "WRITE"})


class BrokerError(Exception):
    """Raised if the brokers do not respond or refuse a request. The error's text can be shown to the user."""


@dataclass(slots=True)
class _Faults:
    """The errors that librdkafka reported while this process waited for a response."""

    last: str = ""
    fatal: str | None = None
    refused_since: float | None = None
    codes: _Codes | None = field(default=None, repr=False)

    def note(self, error: Any) -> None:
        codes = self.codes or _codes()
        if error.code() == codes.all_down:
            self.refused_since = self.refused_since or time.monotonic()
            self.last = self.last or "every connection was closed at once: check properties.security.protocol"
            return
        self.last = error.str()
        if error.code() in codes.fatal:
            self.fatal = self.fatal or error.str()


@dataclass(frozen=True, slots=True)
class _Codes:
    all_down: int
    fatal: frozenset[int]
    missing_topic: frozenset[int]
    refused_topic: frozenset[int]
    passing: frozenset[int]


def _codes() -> _Codes:
    from confluent_kafka import KafkaError

    return _Codes(
        all_down=KafkaError._ALL_BROKERS_DOWN,
        fatal=frozenset(
            {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL, KafkaError._FATAL}
        ),
        missing_topic=frozenset(
            {
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                KafkaError._UNKNOWN_TOPIC,
                KafkaError._UNKNOWN_PARTITION,
                KafkaError.TOPIC_EXCEPTION,
            }
        ),
        refused_topic=frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED}),
        passing=frozenset(
            {
                KafkaError.NOT_LEADER_FOR_PARTITION,
                KafkaError.LEADER_NOT_AVAILABLE,
                KafkaError.REPLICA_NOT_AVAILABLE,
                KafkaError.BROKER_NOT_AVAILABLE,
                KafkaError.FENCED_LEADER_EPOCH,
                KafkaError.UNKNOWN_LEADER_EPOCH,
                KafkaError.OFFSET_NOT_AVAILABLE,
                KafkaError.LISTENER_NOT_FOUND,
                KafkaError.KAFKA_STORAGE_ERROR,
                KafkaError.REQUEST_TIMED_OUT,
                KafkaError.NETWORK_EXCEPTION,
                KafkaError._TRANSPORT,
                KafkaError._NOENT,
                KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                KafkaError.COORDINATOR_NOT_AVAILABLE,
                KafkaError.NOT_COORDINATOR,
            }
        ),
    )


class BrokerAdmin:
    """An administrative client, which is also a context manager. All calls together end within ``timeout`` seconds."""

    def __init__(self, properties: Mapping[str, str], *, timeout: float, is_read_committed: bool = True) -> None:
        from confluent_kafka import KafkaException

        self._failure: type[Exception] = KafkaException
        self._codes = _codes()
        self._faults = _Faults(codes=self._codes)
        self._brokers = properties.get("bootstrap.servers", "")
        self._deadline = time.monotonic() + timeout
        self._timeout = timeout
        self.is_read_committed = is_read_committed
        try:
            self._admin: Any = admin_module().AdminClient(
                {
                    **_CONNECTING,
                    **properties,
                    "error_cb": self._faults.note,
                    "log_level": 0,
                    "socket.timeout.ms": 10000,
                    # Otherwise a request for a topic's leaders may create the topic.
                    "allow.auto.create.topics": "false",
                },
                logger=QUIET,
            )
        except (KafkaException, ValueError, TypeError) as error:
            raise BrokerError(self._reason(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        # The handle lives as long as a reference to it exists. An unanswered future has a reference until its timeout.
        self._admin = None

    def describe(self, topics: Iterable[str]) -> tuple[str | None, dict[str, TopicView], tuple[str, ...]]:
        """Returns the cluster's id, the existing topics among the requested topics, and the names of the missing
        topics.

        Raises BrokerError.
        """
        from confluent_kafka import TopicCollection

        wanted = list(dict.fromkeys(topics))
        cluster = self._call(lambda: self._admin.describe_cluster(request_timeout=self._left()))
        futures = self._call(
            lambda: self._admin.describe_topics(
                TopicCollection(wanted), include_authorized_operations=True, request_timeout=self._left()
            )
        )
        self._wait([cluster, *futures.values()])
        found: dict[str, TopicView] = {}
        missing: list[str] = []
        for topic in wanted:
            try:
                answer = futures[topic].result()
            except self._failure as error:
                if _is_timeout(error.args[0] if error.args else None):
                    raise BrokerError(self._reason(error)) from error
                if _code(error) not in self._codes.missing_topic:
                    raise BrokerError(f'topic "{topic}": {self._reason(error)}') from error
                missing.append(topic)
            else:
                allowed = answer.authorized_operations
                found[topic] = TopicView(
                    id=_topic_id(answer.topic_id),
                    partitions=tuple(sorted(part.id for part in answer.partitions)),
                    # If the brokers report no permissions, every operation may be allowed.
                    is_writable=not allowed or any(operation.name in _ANY_OPERATION for operation in allowed),
                )
        try:
            cluster_id = cluster.result().cluster_id
        except self._failure as error:
            raise BrokerError(self._reason(error)) from error
        return cluster_id, found, tuple(missing)

    def topic_names(self) -> tuple[str, ...]:
        """The names of the topics visible to this user, without Kafka's internal topics; empty if the brokers do not
        respond in time."""
        try:
            found = self._call(lambda: self._admin.list_topics(timeout=self._left()))
        except BrokerError:
            return ()
        return tuple(sorted(name for name in found.topics if not name.startswith("__")))

    def renew(self, timeout: float, *, since: float, is_read_committed: bool = True) -> None:
        """Sets the deadline to ``since`` (``time.monotonic()``) plus ``timeout`` seconds. Discards earlier errors, and
        keeps the connections. If ``is_read_committed`` is true, a partition ends at its last stable offset."""
        self._timeout, self._deadline = timeout, since + timeout
        self.is_read_committed = is_read_committed
        while self._admin.poll(0):
            pass  # discards errors from before the request, when the brokers may have been down
        self._faults.last, self._faults.fatal, self._faults.refused_since = "", None, None

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str | None]:
        """The ids of the existing topics. Raises BrokerError if the brokers do not respond or a topic cannot be
        described."""
        found, failed = self.topic_views(topics)
        for topic, reason in failed.items():
            raise BrokerError(f'topic "{topic}": {reason}')
        return {topic: view.id for topic, view in found.items()}

    def ask(self, start: Callable[[Any, float], Future[Any]]) -> Any:
        """Calls ``start`` with librdkafka's client and the remaining seconds, and returns the result of the future that
        ``start`` returned. Raises BrokerError.

        If a change of leader or coordinator causes an error, the call is repeated until the deadline.
        """
        while True:
            future = self._call(lambda: start(self._admin, self._left()))
            self._wait([future])
            try:
                return future.result()
            except self._failure as error:
                if _code(error) not in self._codes.passing or time.monotonic() + _RETRY_SECONDS >= self._deadline:
                    raise BrokerError(self._reason(error)) from error
            self._admin.poll(_RETRY_SECONDS)

    def offsets(self, partitions: Iterable[tuple[str, int]], *whens: int) -> tuple[dict[tuple[str, int], int], ...]:
        """The offset of each partition at each of ``whens`` (:data:`EARLIEST`, :data:`LATEST`, or ms since 1970).

        For a time after the last record, the offset is -1. All requests run concurrently. If a change of leader causes
        an error, the request is repeated until the deadline. Raises BrokerError.
        """
        return tuple(
            {part: result.offset for part, result in found.items()} for found in self._found(partitions, whens)
        )

    def bounds(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Bounds]:
        """The first offset, end offset, and leader's epoch of each partition. Raises BrokerError."""
        starts, ends = self._found(partitions, (EARLIEST, LATEST))
        return {part: Bounds(starts[part].offset, end.offset, _epoch(end)) for part, end in ends.items()}

    def epochs(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The epochs of the partitions' leaders, as far as the brokers report them. Raises BrokerError."""
        (ends,) = self._found(partitions, (LATEST,))
        return {part: epoch for part, end in ends.items() if (epoch := _epoch(end)) is not None}

    def _found(
        self, partitions: Iterable[tuple[str, int]], whens: Sequence[int]
    ) -> tuple[dict[tuple[str, int], Any], ...]:
        listed = list(partitions)
        answers: tuple[dict[tuple[str, int], Any], ...] = tuple({} for _ in whens)
        while True:
            pending = [
                (answer, {part: self._ask(part, when) for part in listed if part not in answer})
                for answer, when in zip(answers, whens, strict=True)
            ]
            pending = [(answer, wanted) for answer, wanted in pending if wanted]
            if not pending:
                return answers
            passing = self._one_round(pending)
            if passing and time.monotonic() + _RETRY_SECONDS >= self._deadline:
                raise BrokerError(next(iter(passing.values())))
            if passing:
                self._admin.poll(_RETRY_SECONDS)
                self._refresh_leaders(passing)

    def known_ends(self, partitions: Iterable[tuple[str, int]]) -> Answers[tuple[str, int], int]:
        """Reads the ends of partitions. Returns the ends, and the errors of partitions whose end is unknown.

        Raises BrokerError if no broker responds.
        """
        level = self._level()
        asked = dict(self._ask(part, LATEST) for part in partitions)
        if not asked:
            return {}, {}
        futures = self._call(partial(self._list_offsets, asked, level))
        results = {(partition.topic, partition.partition): future for partition, future in futures.items()}
        found, failed = self._answers(results, lambda answer: answer.offset)
        self._refresh_leaders(failed)
        return found, failed

    def topic_views(self, topics: Iterable[str]) -> Answers[str, TopicView]:
        """The existing topics, and the errors of topics that cannot be described. Missing topics are in neither map.

        Does not check permissions: ``is_writable`` is always true. Raises BrokerError if no broker responds.
        """
        from confluent_kafka import TopicCollection

        wanted = list(dict.fromkeys(topics))
        if not wanted:
            return {}, {}
        futures = self._call(lambda: self._admin.describe_topics(TopicCollection(wanted), request_timeout=self._left()))
        return self._answers(futures, _topic_view)

    def _answers(self, futures: Mapping[K, Future[Any]], read: Callable[[Any], V]) -> Answers[K, V]:
        """Returns the results of futures, and the error messages of failed futures. Topics and partitions that do not
        exist are omitted.

        Raises BrokerError only if all futures fail for reasons that do not concern their topics. If the user lacks the
        permission for one topic, the results for the other topics are still returned.
        """
        self._wait(list(futures.values()))
        found: dict[K, V] = {}
        failed: dict[K, str] = {}
        others: Exception | None = None
        is_answered = False
        for key, future in futures.items():
            try:
                found[key] = read(future.result())
            except self._failure as error:
                code = _code(error)
                is_answered = is_answered or code in self._codes.missing_topic or code in self._codes.refused_topic
                if code not in self._codes.missing_topic:
                    others = error
                    failed[key] = self._reason(error)
        if not found and not is_answered and others is not None:
            raise BrokerError(self._reason(others)) from others
        return found, failed

    def _level(self) -> Any:
        from confluent_kafka import IsolationLevel

        return IsolationLevel.READ_COMMITTED if self.is_read_committed else IsolationLevel.READ_UNCOMMITTED

    def _refresh_leaders(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Reads the leaders of the partitions' topics again.

        librdkafka caches leaders for 15 minutes, even if ListOffsets reports that a cached leader is not valid.
        """
        for topic in {topic for topic, _ in partitions}:
            # If this fails, the next request reports the problem.
            with suppress(self._failure):
                self._admin.list_topics(topic, timeout=self._left())

    def _one_round(
        self, pending: list[tuple[dict[tuple[str, int], Any], dict[tuple[str, int], Any]]]
    ) -> dict[tuple[str, int], str]:
        level = self._level()
        asked = [
            (
                answer,
                self._call(partial(self._list_offsets, dict(wanted.values()), level)),
            )
            for answer, wanted in pending
        ]
        self._wait([future for _, futures in asked for future in futures.values()])
        passing: dict[tuple[str, int], str] = {}
        for answer, futures in asked:
            for partition, future in futures.items():
                part = (partition.topic, partition.partition)
                try:
                    answer[part] = future.result()
                except self._failure as error:
                    code, reason = _code(error), f"{part[0]}:{part[1]}: {self._reason(error)}"
                    if code not in self._codes.passing and code not in self._codes.missing_topic:
                        raise BrokerError(reason) from error
                    passing[part] = reason
        return passing

    def _list_offsets(self, wanted: dict[Any, Any], level: Any) -> Any:
        return self._admin.list_offsets(wanted, isolation_level=level, request_timeout=self._left())

    @staticmethod
    def _ask(part: tuple[str, int], when: int) -> tuple[Any, Any]:
        import confluent_kafka

        offset = admin_module().OffsetSpec
        kinds = {EARLIEST: offset.earliest, LATEST: offset.latest}
        spec = kinds[when]() if when in kinds else offset.for_timestamp(when)
        return confluent_kafka.TopicPartition(*part), spec

    def _call(self, start: Callable[[], Any]) -> Any:
        try:
            return start()
        except (self._failure, ValueError, TypeError) as error:
            raise BrokerError(self._reason(error)) from error

    def _left(self) -> float:
        return max(0.1, self._deadline - time.monotonic())

    def _wait(self, futures: list[Future[Any]]) -> None:
        faults = self._faults
        for future in futures:
            while not future.done():
                # Responses arrive on librdkafka's thread, but librdkafka reports errors only in a call of poll.
                wait_for([future], _LOOK_SECONDS)
                self._admin.poll(0)
                now = time.monotonic()
                if faults.fatal:
                    raise BrokerError(self._told(faults.fatal))
                if faults.refused_since is not None and now - faults.refused_since > REFUSED_GRACE_SECONDS:
                    raise BrokerError(self._told(faults.last))
                if now > self._deadline:
                    raise BrokerError(self._told(faults.last or self._silence()))

    def _silence(self) -> str:
        return f"no answer within {self._timeout:g} s"

    def _reason(self, error: Exception) -> str:
        fault = error.args[0] if error.args else None
        text = str(error) if fault is None or not hasattr(fault, "str") else fault.str()
        if fault is not None and _is_timeout(fault):
            text = self._faults.last or (self._silence() if fault.name() == "_TIMED_OUT" else text)
        return self._told(text)

    def _told(self, text: str) -> str:
        has_no_tls = _NO_TLS_THERE.search(text) is not None
        text = text.split(" (after ")[0].removeprefix("Broker: ").removeprefix("Local: ")
        if has_no_tls:
            text = "Broker does not support SSL connections: check properties.security.protocol"
        return text if self._brokers and self._brokers.split(",")[0] in text else f"{self._brokers}: {text}"


EARLIEST = -2
LATEST = -1


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets ``[start, end)`` of a partition. ``epoch`` is the epoch of the partition's leader; None if the
    brokers report no epoch."""

    start: int
    end: int
    epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic as the brokers report it. ``id`` is None if the brokers report no topic ids. ``is_writable`` is false if
    the brokers report that the user must not write to the topic."""

    id: str | None
    partitions: tuple[int, ...]
    is_writable: bool = True


def _epoch(answer: Any) -> int | None:
    epoch = answer.leader_epoch
    return epoch if epoch is not None and epoch >= 0 else None


def _topic_view(answer: Any) -> TopicView:
    numbers = tuple(sorted(part.id for part in answer.partitions))
    return TopicView(id=_topic_id(answer.topic_id), partitions=numbers)


def admin_module() -> Any:
    """The module of librdkafka's administrative classes. Untyped, because the module does not declare its exports."""
    import confluent_kafka.admin

    return confluent_kafka.admin


def is_fatal(error: Any) -> bool:
    """True if an error of librdkafka is permanent."""
    return error.fatal() or error.code() in _codes().fatal


def has_answered(error: Any) -> bool:
    """True if the error is a response: the topic does not exist, or the user lacks the permission to read it."""
    codes = _codes()
    return error.code() in codes.missing_topic or error.code() in codes.refused_topic


def fault_text(error: Exception) -> str:
    """The message of a client's exception."""
    fault = error.args[0] if error.args else None
    return fault.str() if fault is not None and hasattr(fault, "str") else str(error)


def _code(error: Exception) -> int | None:
    return error.args[0].code() if error.args and hasattr(error.args[0], "code") else None


def _is_timeout(fault: Any) -> bool:
    return hasattr(fault, "name") and fault.name() in ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN")


def _topic_id(uuid: Any) -> str | None:
    text = None if uuid is None else str(uuid)
    return None if text in (None, "", "AAAAAAAAAAAAAAAAAAAAAA") else text
