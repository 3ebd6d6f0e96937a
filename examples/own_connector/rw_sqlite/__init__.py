"""An rw_sql connector that follows tables of an SQLite file: each added row becomes a record, as JSON.

A split is a table, an offset is a rowid. SQLite gives new rows higher rowids, so added rows are found at the end.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from importlib.resources import files

from rw_sql.connectors.base import Record, Upstream, UpstreamSplit
from rw_sql.connectors.ranged import PythonConnector
from rw_sql.connectors.spec import ConnectorSpec, parse_spec


class SqliteConnector(PythonConnector):
    spec: ConnectorSpec = parse_spec(files(__name__).joinpath("sqlite.toml").read_text())

    def look(self, options: Mapping[str, str], *, timeout: float = 8.0) -> Upstream:
        """The available offsets: of each table from its first rowid to the one after its last."""
        splits, missing = {}, []
        try:
            with closing(self._open(options)) as database:
                for table in self._tables(options):
                    try:
                        query = f'SELECT coalesce(min(rowid), 1), coalesce(max(rowid), 0) + 1 FROM "{table}"'
                        start, end = database.execute(query).fetchone()
                    except sqlite3.OperationalError:
                        missing.append(table)
                        continue
                    splits[table] = UpstreamSplit(split=table, start=start, end=end, cluster=options["sqlite.file"])
        except sqlite3.Error as error:
            return Upstream(error=f"{options['sqlite.file']}: {error}")
        return Upstream(splits=splits, missing=tuple(missing), cluster=options["sqlite.file"])

    def records(self, options: Mapping[str, str], split: str, start: int, end: int) -> Iterator[Record]:
        """The rows with a rowid from ``start`` up to, and not including, ``end``."""
        with closing(self._open(options)) as database:
            query = f'SELECT rowid, * FROM "{split}" WHERE rowid >= ? AND rowid < ? ORDER BY rowid'
            rows = database.execute(query, (start, end))
            names = [column[0] for column in rows.description][1:]
            for rowid, *values in rows:
                yield Record(offset=rowid, value=json.dumps(dict(zip(names, values, strict=True))).encode())

    def _open(self, options: Mapping[str, str]) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{options['sqlite.file']}?mode=ro", uri=True)

    def _tables(self, options: Mapping[str, str]) -> list[str]:
        return [name.strip() for name in options["sqlite.tables"].split(",")]
