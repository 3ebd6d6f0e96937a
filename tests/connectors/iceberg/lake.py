"""An Iceberg catalog in an SQLite file. The tables are Parquet files beside the SQLite file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table import Table

NAME = "db.orders"
COLUMNS = pa.schema([("id", pa.int64()), ("word", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """The folder of a catalog and its tables."""

    folder: Path

    @property
    def options(self) -> dict[str, str]:
        """The options of a source or sink of the table ``db.orders``."""
        return {
            "catalog.type": "jdbc",
            "catalog.uri": f"jdbc:sqlite:{self.folder}/catalog.db",
            "warehouse.path": f"file://{self.folder}/tables",
            "database.name": "db",
            "table.name": "orders",
        }

    @property
    def clause(self) -> str:
        """The same options as the text of a WITH list."""
        return ", ".join(f"{key} = '{value}'" for key, value in self.options.items())

    def catalog(self) -> Any:
        """Opens the catalog with pyiceberg, as another program would."""
        from pyiceberg.catalog import load_catalog

        return load_catalog(
            "risingwave",
            type="sql",
            uri=f"sqlite:///{self.folder}/catalog.db",
            warehouse=f"file://{self.folder}/tables",
        )

    def create(self, schema: pa.Schema = COLUMNS, **properties: str) -> Table:
        """Creates the table."""
        catalog = self.catalog()
        catalog.create_namespace_if_not_exists("db")
        made: Table = catalog.create_table(NAME, schema=schema, properties=properties)
        return made

    def table(self) -> Table:
        """The current state of the table."""
        found: Table = self.catalog().load_table(NAME)
        return found

    def append(self, *rows: tuple[int | None, str | None]) -> None:
        """Appends rows (id, word), as one snapshot."""
        self.table().append(pa.Table.from_pylist([{"id": id_, "word": word} for id_, word in rows], COLUMNS))

    def rows(self) -> list[tuple[Any, ...]]:
        """The table's rows, sorted."""
        return sorted((tuple(row.values()) for row in self.table().scan().to_arrow().to_pylist()), key=str)
