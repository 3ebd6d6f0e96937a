"""Determines the columns of a table's rows in the log, from the log's own description of the table and from the
server's catalog."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.mysql_cdc.charsets import BINARY
from rw_sql.connectors.mysql_cdc.decoder import KnownTable
from rw_sql.connectors.mysql_cdc.positions import shown
from rw_sql.connectors.mysql_cdc.server import AGAIN
from rw_sql.connectors.mysql_cdc.tables import find_table
from rw_sql.connectors.mysql_cdc.types import labels_of
from rw_sql.connectors.mysql_cdc.values import reader_of
from rw_sql.errors import UPSTREAM_MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pymysql.connections import Connection

    from rw_sql.connectors.changes import TableProgress
    from rw_sql.connectors.mysql_cdc.charsets import Charsets
    from rw_sql.connectors.mysql_cdc.events import StreamColumn, TableMap
    from rw_sql.connectors.mysql_cdc.tables import CatalogColumn

_YEAR, _LABELS, _OLD_TIMES = 13, (247, 248), (7, 11, 12)
_TEXTS = (15, 252, 253, 254, 249, 250, 251, 140, 141)
_SAME = {
    1: ("tinyint",), 2: ("smallint",), 9: ("mediumint",), 3: ("int", "integer"), 8: ("bigint",), 4: ("float",),
    5: ("double",), 246: ("decimal", "numeric"), 16: ("bit",), 10: ("date",), 13: ("year",), 18: ("datetime",),
    12: ("datetime",), 17: ("timestamp",), 7: ("timestamp",), 19: ("time",), 11: ("time",), 245: ("json",),
    15: ("varchar", "varbinary"), 254: ("char", "binary", "uuid", "inet4", "inet6"), 247: ("enum",), 248: ("set",),
    252: ("tinyblob", "blob", "mediumblob", "longblob", "tinytext", "text", "mediumtext", "longtext"),
    140: ("tinyblob", "blob", "mediumblob", "longblob", "tinytext", "text", "mediumtext", "longtext"),
    141: ("varchar", "varbinary"),
}  # fmt: skip
"""For each type of the log, the types that such a column can have in the catalog. If the log does not name the columns,
these types show whether the catalog still describes the same columns."""


class KnownTables:
    """The tables of the stream. The server's catalog is read when the log's description of a table changes."""

    def __init__(self, sql: Callable[[], Connection[Any]], charsets: Charsets) -> None:
        self._sql = sql
        self._charsets = charsets
        self._is_mariadb = False
        self._has_names = True
        self._known: dict[str, tuple[bytes, KnownTable, dict[str, str]]] = {}

    def use(self, *, is_mariadb: bool, has_names: bool) -> None:
        """Stores the server's kind, and whether the server's log contains the names of columns."""
        self._is_mariadb, self._has_names = is_mariadb, has_names

    def forget(self, name: str) -> None:
        """Records that the table's definition has changed, so that the catalog is read again."""
        self._known.pop(name, None)

    def has_seen(self, name: str, found: TableMap) -> bool:
        """True if the log described the table in the same way before its previous rows."""
        known = self._known.get(name)
        return known is not None and known[0] == found.signature

    def table(
        self, name: str, found: TableMap, progress: TableProgress, position: int
    ) -> tuple[KnownTable, dict[str, str]]:
        """Returns the table, and the table's columns with their types in the server's notation. Raises CaptureError or
        pymysql.Error."""
        known = self._known.get(name)
        if known is not None and known[0] == found.signature:
            return known[1], known[2]
        table = find_table(self._sql(), name)
        catalog = {} if table is None else {column.name: column for column in table.columns}
        described = _described(name, self._signed(found, catalog), tuple(catalog.values()), position)
        if any(column.name is None for column in described):
            raise CaptureError(
                UPSTREAM_MISSING,
                f"the log does not contain the column names of table {name} at {shown(position)}",
                hint=f"SET GLOBAL binlog_row_metadata = 'FULL'; then {AGAIN}",
            )
        names = tuple(column.name or "" for column in described)
        lacking = [column for column in progress.key_columns if column not in names]
        if lacking:
            raise CaptureError(
                UPSTREAM_MISSING,
                f'the log no longer contains column "{lacking[0]}" of the primary key of table {name}',
                hint=AGAIN,
            )
        left_out = frozenset(
            column.name for column in catalog.values() if column.is_generated or column.type.canonical is None
        ) & frozenset(names)
        types = {
            column: catalog[column].type_name
            if column in catalog
            else progress.columns.get(column) or f"type {described[at].type}"
            for at, column in enumerate(names)
            if column not in left_out
        }
        readers = []
        for column in described:
            try:
                readers.append(self._reader(column, catalog, types))
            except ValueError as error:
                raise CaptureError(
                    UPSTREAM_MISSING,
                    f'column "{column.name}" of table {name}: {error}',
                    hint="drop the column upstream",
                ) from error
        made = KnownTable(name, described, names, tuple(readers), progress.key_columns, left_out)
        self._known[name] = (found.signature, made, types)
        return made, types

    def _signed(self, found: TableMap, catalog: Mapping[str, CatalogColumn]) -> TableMap:
        """The log's description of a table, with ``is_unsigned`` set for number columns. The log does not state whether
        YEAR columns count as number columns. If one of the two interpretations contradicts the catalog, the other
        interpretation is used.
        """
        ways = [found.with_signs(counts_years=each) for each in (self._is_mariadb, not self._is_mariadb)]
        for columns in ways:
            if all(
                column.is_unsigned is None
                or column.name is None
                or column.name not in catalog
                or column.type == _YEAR
                or column.is_unsigned == ("unsigned" in catalog[column.name].type_name.lower())
                for column in columns
            ):
                return replace(found, columns=columns)
        return replace(found, columns=ways[0])

    def _reader(self, column: StreamColumn, catalog: Mapping[str, CatalogColumn], types: Mapping[str, str]) -> Any:
        known = catalog.get(column.name or "")
        data_type = known.data_type if known is not None else types.get(column.name or "", "").partition("(")[0]
        charset = None
        if column.collation is not None:
            charset = None if column.collation == BINARY else self._charsets.name_of(column.collation)
        elif known is not None and column.type in (*_TEXTS, *_LABELS):
            charset = known.charset
        decode = self._charsets.decoder(charset) if charset is not None and charset != "binary" else None
        if column.type in _LABELS:
            # In the log, labels have the column's character set. In the catalog, labels are in UTF-8.
            if column.labels is None and known is not None:
                column = replace(column, labels=tuple(label.encode() for label in labels_of(known.type_name)))
                decode = bytes.decode
            elif decode is None:
                decode = bytes.decode
        if column.type in _OLD_TIMES and known is not None and "(" in known.type_name:
            raise ValueError("it is stored in the format of MySQL before 5.6, with fractions of a second")
        if column.is_unsigned is None and known is not None:
            column = replace(column, is_unsigned="unsigned" in known.type_name.lower())
        return reader_of(column, data_type, decode)


def _described(
    name: str, found: TableMap, catalog: tuple[CatalogColumn, ...], position: int
) -> tuple[StreamColumn, ...]:
    """Returns the columns. If the log contains no names, the names come from the catalog. Raises CaptureError if the
    log's columns differ from the catalog's columns."""
    if not found.columns or found.columns[0].name is not None:
        return found.columns
    if not catalog:
        return found.columns
    is_same = len(catalog) == len(found.columns) and all(
        each.data_type in _SAME.get(column.type, (each.data_type,))
        for each, column in zip(catalog, found.columns, strict=True)
    )
    if not is_same:
        raise CaptureError(
            UPSTREAM_MISSING,
            f"the columns of table {name} at {shown(position)} differ from its present columns, and the log "
            "contains no column names",
            hint=AGAIN,
        )
    return tuple(replace(column, name=each.name) for each, column in zip(catalog, found.columns, strict=True))
