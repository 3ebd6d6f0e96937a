"""The Kafka connector. Splits are topic partitions; a split state is the offset of the next record to read."""

from __future__ import annotations

import re
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from rw_sql.connectors.base import AT_MOST, RESOLVE_TIMEOUT_SECONDS, PooledTopic, Upstream, UpstreamSplit
from rw_sql.connectors.kafka import odd_times as kafka_odd_times
from rw_sql.connectors.kafka import properties as kafka_properties
from rw_sql.connectors.kafka import secrets as kafka_secrets
from rw_sql.connectors.kafka import spark_reader as kafka_reader
from rw_sql.connectors.plain import PlainConnector
from rw_sql.connectors.spec import OptionError, check_option_values, load_spec
from rw_sql.connectors.support.private_files import share_with_executors
from rw_sql.connectors.support.startup_mode import check_startup, first_offset, startup_time
from rw_sql.errors import (
    INVALID_PROPERTY,
    UNKNOWN_SPLIT,
    UPSTREAM_MISSING,
    UPSTREAM_UNREACHABLE,
    SqlError,
)
from rw_sql.spark_jars import installed_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import GroupOffsets, SplitState, UpstreamWatch
    from rw_sql.connectors.kafka.admin import BrokerAdmin
    from rw_sql.connectors.kafka.fetcher import KafkaFetcher
    from rw_sql.connectors.spec import ConnectorSpec

T = TypeVar("T")

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_BROKER = re.compile(r"(\w+://)?(\[[0-9A-Fa-f:.%]+\]|[^\s:,/\[\]]+):([0-9]{1,5})")
_TIMES_SECONDS = 2.0


class KafkaConnector(PlainConnector):
    """See :class:`rw_sql.connectors.base.Connector`."""

    # Compaction removes records, and transaction markers have offsets too.
    offsets_count = AT_MOST

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/kafka.toml``."""
        return load_spec("kafka")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent. Contacts no broker."""
        check_option_values(self.spec, options)
        check_brokers(options)
        check_topics(options)
        check_startup(self.spec, options)
        kafka_properties.check_security(options)

    def reconnect(self, options: Mapping[str, str]) -> None:
        """Replaces the pooled clients with new clients."""
        from rw_sql.connectors.kafka import client_pool as kafka_visits

        kafka_visits.ADMINS.renew(kafka_properties.admin_properties(self.spec, options))

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """Lists the topics' partitions with their first and end offsets."""
        from rw_sql.connectors.kafka import client_pool as kafka_visits

        # check_options sees no values of secrets.
        if (misfit := kafka_properties.login_misfit(options)) is not None:
            return Upstream(error=misfit.message, refused_key=misfit.key, hint=misfit.hint)
        return kafka_visits.look(
            kafka_properties.admin_properties(self.spec, options),
            topics_of(options),
            timeout=kafka_properties.call_timeout(self.spec, options, timeout),
            is_read_committed=self._is_read_committed(options),
        )

    def pool_key(self, options: Mapping[str, str]) -> Hashable:
        """The clients' properties (brokers, login, encryption), and True if the clients read only committed records."""
        properties = kafka_properties.admin_properties(self.spec, options)
        return tuple(sorted(properties.items())), self._is_read_committed(options)

    def pooled_ends(
        self, options: Mapping[str, str], splits: Collection[str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, int]:
        """Reads the ends of all partitions with one ListOffsets request per broker."""
        from rw_sql.connectors.kafka.ends import quick_ends

        parts = {kafka_reader.split_parts(split): split for split in splits}
        found = quick_ends(
            kafka_properties.reader_properties(self.spec, options),
            parts,
            timeout=kafka_properties.call_timeout(self.spec, options, timeout),
            is_read_committed=self._is_read_committed(options),
        )
        if found is None:
            found, _ = self._pooled(options, lambda admin: admin.known_ends(parts), timeout)
        return {parts[part]: end for part, end in found.items()}

    def pooled_topics(
        self, options: Mapping[str, str], topics: Collection[str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, PooledTopic]:
        """Describes all topics with one DescribeTopicPartitions request."""
        found, _ = self._pooled(options, lambda admin: admin.topic_views(topics), timeout)
        return {
            topic: PooledTopic(
                incarnation=view.id,
                splits=frozenset(kafka_reader.split_id(topic, number) for number in view.partitions),
            )
            for topic, view in found.items()
        }

    def terms(
        self, options: Mapping[str, str], splits: Collection[str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, int]:
        """The epochs of the partitions' leaders, read with one ListOffsets request per broker."""
        parts = {kafka_reader.split_parts(split): split for split in splits}
        found = self._pooled(options, lambda admin: admin.epochs(parts), timeout)
        return {parts[part]: epoch for part, epoch in found.items()}

    def diverged(
        self, options: Mapping[str, str], states: Mapping[str, SplitState], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, int]:
        """Returns the first lost offset of each partition that has lost records before its position. The method
        compares the position with the offset at which the records of the position's leader epoch end. The partition's
        leader reports this offset."""
        from rw_sql.connectors.kafka.admin import BrokerError
        from rw_sql.connectors.kafka.truncation import diverged

        parts = {
            kafka_reader.split_parts(split): (state.offset, state.term)
            for split, state in states.items()
            if state.term is not None and state.offset > 0
        }
        properties = kafka_properties.reader_properties(self.spec, options)
        limit = kafka_properties.call_timeout(self.spec, options, timeout)
        try:
            found = diverged(properties, parts, timeout=limit)
        except BrokerError as error:
            raise ConnectionError(str(error)) from error
        return {kafka_reader.split_id(*part): offset for part, offset in found.items()}

    def _pooled(self, options: Mapping[str, str], ask: Callable[[BrokerAdmin], T], timeout: float) -> T:
        from rw_sql.connectors.kafka import admin as kafka_admin
        from rw_sql.connectors.kafka import client_pool as kafka_visits

        try:
            return kafka_visits.with_client(
                kafka_properties.admin_properties(self.spec, options),
                ask,
                timeout=kafka_properties.call_timeout(self.spec, options, timeout),
                is_read_committed=self._is_read_committed(options),
            )
        except kafka_admin.BrokerError as error:
            raise ConnectionError(str(error)) from error

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """The offset of each split's first record at or after ``milliseconds``; the split's end if there is no such
        record.

        Raises SqlError UPSTREAM_UNREACHABLE, or UPSTREAM_MISSING if a split's topic does not exist.
        """
        from rw_sql.connectors.kafka import admin as kafka_admin
        from rw_sql.connectors.kafka import client_pool as kafka_visits

        wanted = [kafka_reader.split_parts(split) for split in splits]

        def ask(admin: kafka_admin.BrokerAdmin) -> tuple[dict[tuple[str, int], int], ...]:
            _, _, missing = admin.describe(topic for topic, _ in wanted)
            if missing:
                raise SqlError(
                    UPSTREAM_MISSING,
                    f'topic "{missing[0]}" does not exist',
                    hint="run the statement again once the topic exists",
                )
            return admin.offsets(wanted, milliseconds, kafka_admin.LATEST)

        try:
            at, ends = kafka_visits.with_client(
                kafka_properties.admin_properties(self.spec, options),
                ask,
                timeout=kafka_properties.call_timeout(self.spec, options, timeout),
                is_read_committed=self._is_read_committed(options),
            )
        except kafka_admin.BrokerError as error:
            raise SqlError(
                UPSTREAM_UNREACHABLE,
                f"the brokers do not answer: {error}",
                hint="run the statement again once the brokers answer",
            ) from error
        return {
            kafka_reader.split_id(*part): at[part] if 0 <= at[part] <= ends[part] else ends[part] for part in wanted
        }

    def sparse_topics(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, str]:
        """Returns the topics in which some offsets may have no record, each with the reason. These are compacted
        topics, topics with transaction markers, and topics that could not be checked."""
        from rw_sql.connectors.kafka import peek as kafka_peek

        return kafka_peek.sparse_topics(
            kafka_properties.reader_properties(self.spec, options),
            topics_of(options),
            timeout=kafka_properties.call_timeout(self.spec, options, timeout),
        )

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """The write time of the first record at or after each partition's offset.

        The result omits partitions without such a record, partitions whose broker does not respond within
        _TIMES_SECONDS, and partitions beyond the maximum number of :func:`rw_sql.connectors.kafka.peek.record_times`.
        """
        from rw_sql.connectors.kafka import peek as kafka_peek

        found = kafka_peek.record_times(
            kafka_properties.reader_properties(self.spec, options),
            {kafka_reader.split_parts(split): offset for split, offset in offsets.items()},
            timeout=_TIMES_SECONDS,
        )
        return {kafka_reader.split_id(*part): at for part, at in found.items()}

    def group_offsets(
        self,
        options: Mapping[str, str],
        group: str,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> GroupOffsets:
        """The offsets that a consumer group has committed for the partitions. Raises SqlError UPSTREAM_UNREACHABLE."""
        from rw_sql.connectors.kafka import admin as kafka_admin
        from rw_sql.connectors.kafka import groups as kafka_groups

        try:
            return kafka_groups.committed(
                kafka_properties.admin_properties(self.spec, options),
                group,
                [kafka_reader.split_parts(split) for split in splits],
                timeout=kafka_properties.call_timeout(self.spec, options, timeout),
            )
        except kafka_admin.BrokerError as error:
            raise SqlError(
                UPSTREAM_UNREACHABLE,
                f"the brokers do not answer: {error}",
                hint="run the statement again once the brokers answer",
            ) from error

    def start_offset(self, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]) -> int:
        """The offset at which reading begins in a split without a state, as ``scan.startup.mode`` determines."""
        return first_offset(self.spec, options, split, at_times)

    def startup_time(self, options: Mapping[str, str]) -> int | None:
        """The time of ``scan.startup.mode = 'timestamp'``, in milliseconds since 1970; None for other modes."""
        return startup_time(self.spec, options)

    def split_topic(self, split: str) -> str:
        """The topic of a split."""
        return split.rpartition(":")[0]

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The topics in the option ``topic``."""
        return topics_of(options)

    def watch(self, options: Mapping[str, str]) -> UpstreamWatch | None:
        """Returns a watch that polls the brokers for topic ids over one connection."""
        from rw_sql.connectors.kafka.topic_watch import TopicWatch

        return TopicWatch(kafka_properties.admin_properties(self.spec, options))

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """The id ``topic:partition``. If the source has one topic, a bare number names a partition of this topic.

        Raises SqlError UNKNOWN_SPLIT for text that cannot be a split's id. Does not check whether the split exists.
        """
        topics = topics_of(options)
        text = written.strip()
        if _is_number(text):
            if len(topics) > 1:
                raise SqlError(
                    UNKNOWN_SPLIT,
                    f'split "{written}" could belong to several topics',
                    hint=f"write the topic too: '{topics[0]}:{int(text)}'",
                )
            return kafka_reader.split_id(topics[0], int(text))
        topic, colon, number = text.rpartition(":")
        if not colon or not _is_number(number) or _TOPIC.fullmatch(topic) is None:
            raise SqlError(
                UNKNOWN_SPLIT,
                f'"{written}" is not a split of a Kafka source',
                hint=f"a split is named topic:partition, such as '{topics[0]}:0'",
            )
        return kafka_reader.split_id(topic, int(number))

    def read_stream(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        positions: Mapping[str, SplitState],
        *,
        max_records: int | None,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """A stream of exactly these partitions, which Spark's own reader reads. The jars of :meth:`spark_packages` must
        be loaded."""
        return kafka_reader.read_stream(
            spark,
            self._without_secrets(options),
            positions,
            max_records=max_records,
            with_headers=with_headers,
        )

    def read_batch(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
        *,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """The records of exactly these ranges, which Spark's own batch reader reads. The jars of :meth:`spark_packages`
        must be loaded.

        If a partition has a record with a timestamp that Spark cannot represent, the first such record and all later
        records of the partition are read without Spark's reader. If ``with_headers`` is true, such a record instead
        raises UnreadableRecordError, because only Spark's reader can read headers.
        """
        odd = self.unstreamable(options, ranges)
        if with_headers:
            # librdkafka's Python client cannot read the headers of all records.
            kafka_odd_times.require_none(
                kafka_properties.reader_properties(self.spec, options),
                ranges,
                odd,
                "a source with INCLUDE header",
                is_read_committed=self._is_read_committed(options),
            )
            odd = {}
        before, after = kafka_odd_times.cut(ranges, odd)
        frames = []
        if before:
            hidden = self._without_secrets(options)
            frames.append(kafka_reader.read_batch(spark, hidden, before, with_headers=with_headers))
        if after:
            frames.append(
                kafka_odd_times.read_batch(
                    spark,
                    kafka_properties.reader_properties(self.spec, options),
                    after,
                    is_read_committed=self._is_read_committed(options),
                )
            )
        return reduce(lambda left, right: left.unionByName(right), frames)

    def _without_secrets(self, options: Mapping[str, str]) -> dict[str, str]:
        """Returns the options of Spark's reader. References to files replace the secrets."""
        share_with_executors(options.values())  # The JAAS line may name the file of a keytab.
        return kafka_secrets.hide(
            kafka_properties.spark_options(self.spec, options), kafka_secrets.renamed_secrets(self.spec, options)
        )

    def unstreamable(self, options: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """Returns, for each partition, the offset of the first record whose timestamp Spark cannot represent. The
        result omits a partition if no such record is before the end of its range. The result is empty if the brokers do
        not respond, because Spark's reader then reports the reason."""
        parts = {kafka_reader.split_parts(split): split for split in ranges}
        try:
            (found,) = self._pooled(
                options, lambda admin: admin.offsets(parts, kafka_odd_times.FIRST_MS), RESOLVE_TIMEOUT_SECONDS
            )
        except ConnectionError:
            return {}
        odd = {parts[part]: offset for part, offset in found.items() if offset >= 0}
        return {split: offset for split, offset in odd.items() if offset < ranges[split][1]}

    def fetcher(self, options: Mapping[str, str], *, with_headers: bool = False) -> KafkaFetcher:
        """A fetcher with one consumer for all partitions."""
        from rw_sql.connectors.kafka.fetcher import KafkaFetcher

        return KafkaFetcher(
            properties=kafka_properties.reader_properties(self.spec, options),
            is_read_committed=self._is_read_committed(options),
            with_headers=with_headers,
        )

    def read_positions(self, source_offset: str) -> dict[str, int]:
        """Parses the next offset of each split from JSON such as ``{"orders":{"0":5}}``."""
        return kafka_reader.read_offsets(source_offset)

    def write_positions(self, positions: Mapping[str, int]) -> str:
        """The positions as JSON, such as ``{"orders":{"0":5}}``."""
        return kafka_reader.write_offsets(positions)

    def beginning(self, positions: Mapping[str, int]) -> str | None:
        """Returns the content of the file with the initial offsets of Spark's source, in version 1 of the format of
        ``KafkaSourceInitialOffsetWriter``. Without this file, Spark's source would request the offsets from the
        brokers, although rw_sql has already checked them.
        """
        return f"\0v1\n{self.write_positions(positions)}"

    def spark_packages(self) -> tuple[str, ...]:
        """Spark's Kafka reader and its token provider."""
        return installed_jars().kafka

    def _is_read_committed(self, options: Mapping[str, str]) -> bool:
        return (self.spec.value(options, "properties.isolation.level") or "").strip().lower() == "read_committed"


def check_brokers(options: Mapping[str, str]) -> None:
    """Checks that ``properties.bootstrap.server`` is a list of addresses. Raises INVALID_PROPERTY."""
    for broker in options["properties.bootstrap.server"].split(","):
        match = _BROKER.fullmatch(broker.strip())
        if match is None or not 0 < int(match[3]) < 65536:
            raise OptionError(
                INVALID_PROPERTY,
                # An address may contain a password.
                'property "properties.bootstrap.server" must be a list of host:port'
                + ("" if "@" in broker else f", not '{broker.strip()}'"),
                key="properties.bootstrap.server",
                hint="properties.bootstrap.server = 'host:9092'",
            )


def check_topics(options: Mapping[str, str]) -> None:
    """Checks that ``topic`` contains valid topic names. Raises INVALID_PROPERTY."""
    for topic in topics_of(options):
        if _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
            raise OptionError(
                INVALID_PROPERTY,
                f"property \"topic\" names '{topic}', which is not a topic's name",
                key="topic",
                hint="a topic's name has at most 249 letters, digits, dots, underscores and hyphens",
            )


def topics_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The topics that a source's options name, each once, in the order in which the options name them."""
    return tuple(dict.fromkeys(part.strip() for part in options.get("topic", "").split(",") if part.strip()))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 11
