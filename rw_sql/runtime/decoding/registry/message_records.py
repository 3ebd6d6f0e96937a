"""Decodes the records of a source of Protobuf messages. The schema with which a record was written determines the
record's message type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.connectors.schemas import protobuf
from rw_sql.connectors.schemas.client import RegistryClient
from rw_sql.connectors.schemas.options import client_options
from rw_sql.errors import PACKAGE_MISSING, SqlError
from rw_sql.runtime.decoding.change_formats.rows import ROW
from rw_sql.runtime.decoding.registry.protobuf_rows import ProtobufRows, message_rows
from rw_sql.runtime.decoding.registry.writers import (
    Writer,
    Writers,
    heads_in,
    heads_of,
    subjects_of,
    unknown_heads,
)
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from rw_sql.syntax.statements import CreateSource

_COLUMNS = ("value",)


class MessageWriters(Writers):
    """The writers of one topic's values, with the message types of their schemas."""

    def _made(self, head: bytes, id_: int, kind: str, text: str, imports: tuple[tuple[str, str], ...]) -> Writer:
        if kind != "PROTOBUF":
            return Writer(head=head, refusal=f"schema {id_} is {kind}, not PROTOBUF")
        try:
            return Writer(head=head, types=protobuf.written_types(protobuf.compiled(text, imports)))
        except SqlError as error:
            if error.code == PACKAGE_MISSING.code:
                raise StalledError(f"{error.message}: {error.hint}") from error
            return Writer(head=head, refusal=f"schema {id_} cannot be read: {error.message}")


@dataclass(slots=True)
class MessageRecords:
    """Reads the Protobuf messages of one source. ``SchemaRecords`` does the same for Avro.

    ``writers`` is None if records have no frame. In this case, every record is read as a message of the source's type.
    """

    statement: CreateSource
    reader: ProtobufRows
    writers: MessageWriters | None
    subjects: tuple[str, ...]

    @staticmethod
    def of(statement: CreateSource, options: Mapping[str, str]) -> MessageRecords | None:
        """Returns the reader of a source's records; None if the records are not Protobuf messages. ``options`` are the
        source's options, with the values of secrets."""
        reader = ProtobufRows.of(statement)
        if reader is None:
            return None
        writers = MessageWriters(RegistryClient(client_options(options)), {}) if reader.is_framed else None
        return MessageRecords(statement, reader, writers, subjects_of(statement, options))

    def add_versions(self) -> None:
        """Loads all versions of the topics' subjects. Raises StalledError if the registry does not respond."""
        if self.writers is not None:
            for subject in self.subjects:
                self.writers.add_versions(subject)

    def heads_in(self, records: pa.Table) -> frozenset[bytes]:
        """The distinct heads of records in this process's memory. A head is a record's first bytes, which contain the
        id of its schema."""
        return heads_in(records, _COLUMNS) if self.writers is not None else frozenset()

    def heads_of(self, records: DataFrame) -> frozenset[bytes]:
        """The distinct heads of a DataFrame's records. Reads the records."""
        return heads_of(records, _COLUMNS) if self.writers is not None else frozenset()

    @property
    def known_heads(self) -> frozenset[bytes]:
        """The heads of the records of all writers that are known so far."""
        return frozenset(self.writers.heads) if self.writers is not None else frozenset()

    def unknown_in(self, faults: Iterable[str | None]) -> frozenset[bytes]:
        """Returns the heads of those schemas that ``faults`` report as missing although the registry has them.

        Raises StalledError if the registry does not respond.
        """
        return unknown_heads(faults, () if self.writers is None else (self.writers,))

    def decoded(self, records: pa.Table, heads: frozenset[bytes]) -> pa.Table:
        """Decodes records in this process. Raises StalledError if the registry does not respond."""
        return self._by(heads).read(records)

    def rows(self, records: DataFrame, heads: frozenset[bytes]) -> DataFrame:
        """Returns the records with ``_rw_row`` and ``_rw_fault`` and, for a change format, with ``_rw_op``. Records
        that :meth:`decoded` has decoded in this process are not decoded again.

        Raises StalledError if the registry does not respond.
        """
        if ROW not in records.columns:
            records = self._by(heads).read_in_spark(records)
        return message_rows(records, self.statement)

    def _by(self, heads: frozenset[bytes]) -> ProtobufRows:
        if self.writers is None:
            return self.reader
        known = self.writers.known(heads)
        return replace(self.reader, types={writer.head: writer.refusal or writer.types for writer in known})
