"""Finds the built-in connectors, and third-party connectors through entry-point groups.

The entry-point group of sources is ``rw_sql.connectors``, and the group of sinks is ``rw_sql.sinks``. The built-in
connectors are listed in this module. They have no entry points, because in a source checkout, changes to entry points
require a new installation of the package.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import NamingConnector
from rw_sql.connectors.changes import ChangeConnector
from rw_sql.connectors.snapshots import SnapshotReader
from rw_sql.errors import NOT_SUPPORTED, Span, SqlError, near_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Connector
    from rw_sql.connectors.sink import SinkConnector

GROUP = "rw_sql.connectors"
SINK_GROUP = "rw_sql.sinks"

BUILT_IN = {
    "kafka": "rw_sql.connectors.kafka.source:KafkaConnector",
    "datagen": "rw_sql.connectors.datagen.source:DatagenConnector",
    "posix_fs": "rw_sql.connectors.files.source:PosixFsConnector",
    "s3": "rw_sql.connectors.files.source:S3Connector",
    "gcs": "rw_sql.connectors.files.source:GcsConnector",
    "azblob": "rw_sql.connectors.files.source:AzblobConnector",
    "delta": "rw_sql.connectors.delta.source:DeltaConnector",
    "jdbc": "rw_sql.connectors.jdbc.source:JdbcConnector",
    "iceberg": "rw_sql.connectors.iceberg.source:IcebergConnector",
    "mqtt": "rw_sql.connectors.mqtt.source:MqttConnector",
    "nats": "rw_sql.connectors.nats.source:NatsConnector",
    "kinesis": "rw_sql.connectors.kinesis.source:KinesisConnector",
    "mysql-cdc": "rw_sql.connectors.mysql_cdc.source:MysqlCdcConnector",
    "pulsar": "rw_sql.connectors.pulsar.source:PulsarConnector",
    "rabbitmq": "rw_sql.connectors.rabbitmq.source:RabbitConnector",
    "postgres-cdc": "rw_sql.connectors.postgres_cdc.source:PostgresCdcConnector",
}
"""The built-in source connectors: name → class. Third-party connectors cannot use these names."""

BUILT_IN_SINKS = {
    "kafka": "rw_sql.connectors.kafka.sink:KafkaSink",
    "deltalake": "rw_sql.connectors.delta.sink:DeltaSink",
    "fs": "rw_sql.connectors.files.sink:FileSink",
    "jdbc": "rw_sql.connectors.jdbc.sink:JdbcSink",
    "iceberg": "rw_sql.connectors.iceberg.sink:IcebergSink",
}
"""The built-in sink connectors: name → class. Third-party connectors cannot use these names."""

_OTHERS = "use one of these, or install a package that has this connector"

_KAFKA = "connector = 'kafka' is for every broker with Kafka's protocol"
_POSTGRES = "connector = 'postgres-cdc' reads changes; 'jdbc' is for REFRESH TABLE"
_DEBEZIUM = (
    "let Debezium write its changes to Kafka, then CREATE TABLE a_table (id INT PRIMARY KEY, …) WITH "
    "(connector = 'kafka', …) FORMAT DEBEZIUM ENCODE JSON"
)
_INSTEAD = {
    **dict.fromkeys(("confluent", "msk", "redpanda"), _KAFKA),
    **dict.fromkeys(("citus-cdc", "db2-cdc", "mongodb-cdc", "oracle-cdc", "sqlserver-cdc"), _DEBEZIUM),
    **dict.fromkeys(("mariadb", "mariadb-cdc", "mysql"), "connector = 'mysql-cdc' reads MySQL and MariaDB"),
    **dict.fromkeys(("postgres", "postgresql"), _POSTGRES),
    **dict.fromkeys(("file", "filesystem", "fs"), "connector = 'posix_fs' reads the files of a folder"),
    "azure_blob": "connector = 'azblob' reads Azure's blobs",
    "nexmark": "connector = 'datagen' generates rows",
}
"""Maps the connector names of RisingWave and other systems to a hint with the connector to use instead."""

_JDBC = "connector = 'jdbc' writes to databases: jdbc.url = 'jdbc:postgresql://host/database', table.name = '…'"
_FILES = "connector = 'fs' writes files, 'deltalake' and 'iceberg' tables in an object store"
_SINK_INSTEAD = {
    **dict.fromkeys(("confluent", "msk", "redpanda"), _KAFKA),
    **dict.fromkeys(("cockroachdb", "mariadb", "mysql", "oracle", "postgres", "postgresql", "redshift"), _JDBC),
    **dict.fromkeys(("sqlserver", "sqlite"), _JDBC),
    **dict.fromkeys(("azblob", "file", "filesystem", "gcs", "parquet", "posix_fs", "s3", "webhdfs"), _FILES),
}


@cache
def connector_names() -> tuple[str, ...]:
    """The valid names in ``connector = '…'`` of a source, sorted.

    Only a new process finds the connectors of packages that are installed later.
    """
    return tuple(sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))}))


def connector(name: str, span: Span | None = None) -> Connector:
    """The connector with that name. Raises SqlError NOT_SUPPORTED if there is no such connector."""
    if name not in connector_names():
        near = near_names(name.lower(), connector_names())
        raise SqlError(
            NOT_SUPPORTED,
            f'connector "{name}" is not supported, accept [{", ".join(connector_names())}]',
            hint=_INSTEAD.get(name.lower()) or (f"did you mean '{near[0]}'?" if near else _OTHERS),
            span=span,
        )
    return _load(name)


@cache
def snapshot_connector_names() -> tuple[str, ...]:
    """The connectors that REFRESH TABLE supports, sorted."""
    return tuple(name for name in connector_names() if isinstance(_load(name), SnapshotReader))


def snapshot_reader(name: str) -> SnapshotReader | None:
    """The connector with that name; None if REFRESH TABLE does not support it. Raises SqlError NOT_SUPPORTED if
    there is no such connector."""
    found = connector(name)
    return found if isinstance(found, SnapshotReader) else None


def change_connector(name: str) -> ChangeConnector:
    """The connector with that name. Raises TypeError if the connector does not capture a database's changes."""
    found = connector(name)
    if not isinstance(found, ChangeConnector):
        raise TypeError(f"connector {name} does not capture changes")
    return found


@cache
def captures_changes(name: str) -> bool:
    """True if the connector exists and captures the changes of a database."""
    return name in connector_names() and isinstance(_load(name), ChangeConnector)


@cache
def has_slot(name: str) -> bool:
    """True if the connector exists and reads through a replication slot. The upstream then keeps its log until the
    reader of the slot has read it."""
    return captures_changes(name) and _load(name).spec.option("slot.name") is not None


@cache
def sends_once(name: str) -> bool:
    """True if the connector exists and its upstream sends each record only once. After a record has been received, only
    the source's log in the warehouse contains it."""
    return captures_changes(name) or (name in connector_names() and bool(getattr(_load(name), "is_sent_once", False)))


def names_upstream(name: str) -> NamingConnector | None:
    """The connector with that name, if its sources create objects upstream and it generates their names; otherwise
    None."""
    found = _load(name) if name in connector_names() else None
    return found if isinstance(found, NamingConnector) else None


def names_split(name: str, options: Mapping[str, str], split: str) -> bool:
    """False if the options exclude a split with this id, for example by a pattern for file names. True for all other
    ids, even if no such split exists."""
    test = getattr(connector(name), "names_split", None)
    return test is None or bool(test(options, split))


@cache
def has_wide_offsets(name: str) -> bool:
    """True if the connector exists and its offsets do not fit into 64 bits."""
    return name in connector_names() and bool(getattr(_load(name), "has_wide_offsets", False))


@cache
def has_shared_offsets(name: str) -> bool:
    """True if the connector exists and two records of one split may have equal offsets."""
    return name in connector_names() and bool(getattr(_load(name), "has_shared_offsets", False))


@cache
def included_offset(name: str) -> str | None:
    """The column of the connector's records that INCLUDE offset returns. None if INCLUDE offset returns the numeric
    offset."""
    return getattr(_load(name), "included_offset", None) if name in connector_names() else None


@cache
def sink_connector_names() -> tuple[str, ...]:
    """The valid names in ``connector = '…'`` of a sink, sorted.

    Only a new process finds the connectors of packages that are installed later.
    """
    return tuple(sorted({*BUILT_IN_SINKS, *(entry.name for entry in entry_points(group=SINK_GROUP))}))


def sink_connector(name: str, span: Span | None = None) -> SinkConnector:
    """The sink connector with that name. Raises SqlError NOT_SUPPORTED if there is no such sink connector."""
    if name not in sink_connector_names():
        near = near_names(name.lower(), sink_connector_names())
        raise SqlError(
            NOT_SUPPORTED,
            f'sink connector "{name}" is not supported, accept [{", ".join(sink_connector_names())}]',
            hint=_SINK_INSTEAD.get(name.lower()) or (f"did you mean '{near[0]}'?" if near else _OTHERS),
            span=span,
        )
    return _load_sink(name)


@cache
def _load(name: str) -> Connector:
    made: Connector = _class_of(name, BUILT_IN, GROUP)()
    return made


@cache
def _load_sink(name: str) -> SinkConnector:
    made: SinkConnector = _class_of(name, BUILT_IN_SINKS, SINK_GROUP)()
    return made


def _class_of(name: str, built_in: Mapping[str, str], group: str) -> Any:
    if name in built_in:
        return EntryPoint(name=name, value=built_in[name], group=group).load()
    (entry, *_) = entry_points(group=group, name=name)
    return entry.load()
