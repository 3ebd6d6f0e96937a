"""Determines the names by which a session's statements are routed to rw_sql or to Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.model.object_lookup import is_schema
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.plan.statements.session.search_path import DEFAULT_PATH, is_relation
from rw_sql.syntax.lexing.identifiers import PUBLIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from rw_sql.metastore import Metastore
    from rw_sql.runtime.sql.catalog_views import SparkViews
    from rw_sql.syntax.statements import Name


@dataclass(frozen=True, slots=True)
class SessionNames:
    """The names that exist for one session. Implements :class:`rw_sql.syntax.routing.CatalogView` and
    :class:`rw_sql.syntax.routing.SchemaView`."""

    metastore: Metastore
    spark: SparkSession
    views: SparkViews
    search_path: Callable[[], tuple[str, ...]]

    def has_object(self, name: Name) -> bool:
        """True if this name refers to an rw_sql relation that exists and that no object of the user hides."""
        path = self.search_path()
        if not is_relation(self.metastore.snapshot(), name, path):
            return False
        return name.schema is not None or path != DEFAULT_PATH or not self.views.is_hidden(name.last)

    def has_parameter(self, name: str) -> bool:
        """True if an rw_sql session parameter with this name exists."""
        return name in SESSION_PARAMETERS

    def has_schema(self, name: str | None = None) -> bool:
        """True if USE with this name selects an rw_sql schema, not a Spark database. If ``name`` is None, True if any
        schema other than ``public`` exists."""
        snapshot = self.metastore.snapshot()
        if name is None:
            return bool(snapshot.all("schema"))
        # USE default returns to public, because the views of public are in Spark's default database.
        if name == self.views.database:
            return self.search_path() != DEFAULT_PATH
        return is_schema(snapshot, name) and (name != PUBLIC or not self.spark.catalog.databaseExists(PUBLIC))

    def has_database(self, name: str) -> bool:
        """True if Spark has a database with this name that is not an rw_sql schema."""
        return self.views.has_users_database(name)
