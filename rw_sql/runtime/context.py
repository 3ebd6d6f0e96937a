"""What every part of the runtime shares: the warehouse, its metastore, Spark, and who this process is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.plan.definitions import definition_of, upstream_options
from rw_sql.runtime.decode import log_schema
from rw_sql.runtime.delta_log import latest_version

if TYPE_CHECKING:
    from rw_sql.metastore import Metastore
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.spark_sessions import SparkSessions
    from rw_sql.runtime.storage import Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One attached warehouse in this process. ``owner`` is this process's name in the lease."""

    warehouse: Warehouse
    metastore: Metastore
    sessions: SparkSessions
    owner: str

    def resolve(self, options: tuple[tuple[str, str], ...]) -> dict[str, str]:
        """A source's WITH list with its references replaced by what they stand for."""
        return dict(options)

    def options_of(self, source: SourceRecord) -> dict[str, str]:
        """A source's resolved options."""
        return self.resolve(upstream_options(definition_of(source)))

    def log_path(self, source: SourceRecord) -> str:
        """The Delta table of a source's log."""
        return self.warehouse.data(source.id, source.generation)

    def ensure_log(self, source: SourceRecord) -> None:
        """Makes a source's log if it is not there yet; any process may."""
        from deltalake import DeltaTable, Schema

        # Not whether its folder is there: a process that died while making it may have left one without a commit.
        if latest_version(self.warehouse, self.log_path(source)) >= 0:
            return
        DeltaTable.create(
            self.log_path(source),
            Schema.from_json(log_schema(definition_of(source)).json()),
            mode="ignore",
            partition_by=["_rw_bucket"],
        )
