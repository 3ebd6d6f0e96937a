"""Manages the Spark databases that rw_sql creates for schemas. Each database contains views of the schema's objects.
With these views, plain Spark SQL can read the objects."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rw_sql.runtime.spark.jvm import java_session
from rw_sql.runtime.spark.sessions import plain_sql
from rw_sql.syntax.lexing.identifiers import quoted_for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

SPARK_CATALOG = "spark_catalog"
"""The name of the Spark catalog that always contains rw_sql's databases and views, even while a session uses another
catalog."""

_DEFAULT = "default"

MARK = "rw_sql.warehouse"
"""The property that distinguishes rw_sql's databases and views from the user's databases and views. The value of the
property is the URI of the warehouse to which the database or view belongs."""


def current_database(spark: SparkSession) -> str:
    """The session's current database in Spark's own catalog. If the session uses another catalog, the result is
    ``default``."""
    catalog = spark.catalog
    return catalog.currentDatabase() if catalog.currentCatalog() == SPARK_CATALOG else _DEFAULT


def delta_prefix(spark: SparkSession) -> str:
    """The prefix before the path of a Delta table in a query of the session. If the session uses a catalog other than
    Spark's own, Spark finds the table only if the prefix names Spark's own catalog."""
    return "delta." if spark.catalog.currentCatalog() == SPARK_CATALOG else f"{SPARK_CATALOG}.delta."


def delta_table(spark: SparkSession, path: str) -> str:
    """The text by which a query of the session refers to the Delta table at ``path``."""
    return f"{delta_prefix(spark)}{quoted_for_spark(path)}"


def warehouse_of_database(spark: SparkSession, name: str) -> str | None:
    """The URI of the warehouse to which a schema's Spark database belongs; empty for a user's database, None if the
    database does not exist."""
    if not spark.catalog.databaseExists(_qualified(name)):
        return None
    # The properties are read from the JVM, because DESCRIBE DATABASE prints all properties as one string.
    properties = java_session(spark).sessionState().catalog().getDatabaseMetadata(name).properties()
    return str(properties.apply(MARK)) if properties.contains(MARK) else ""


def warehouse_of_view(spark: SparkSession, qualified: str) -> str | None:
    """The URI of the warehouse to which a view in a database belongs. The result is empty for a view or table of the
    user, and None if there is neither a view nor a table with this name."""
    if not spark.catalog.tableExists(qualified):
        return None
    properties = plain_sql(spark, f"SHOW TBLPROPERTIES {qualified}").collect()
    return str(next((row[1] for row in properties if row[0] == MARK), ""))


def is_users_database(spark: SparkSession, name: str, warehouse: str) -> bool:
    """True if Spark has a database with this name that is not a schema of this warehouse."""
    return warehouse_of_database(spark, name) not in (None, warehouse)


def in_current_database(spark: SparkSession, name: str) -> str:
    """The full name of a table of the session's current database. The result is empty if the current database is
    ``default`` or has no table with this name. (A new session, and therefore the session of a job, begins with the
    database ``default``.)"""
    current = spark.catalog.currentCatalog(), spark.catalog.currentDatabase()
    if current == (SPARK_CATALOG, _DEFAULT):
        return ""
    full = ".".join(quoted_for_spark(part) for part in (*current, name))
    return full if spark.catalog.tableExists(full) else ""


def make_database(spark: SparkSession, name: str, warehouse: str) -> bool:
    """Creates the database of a schema, unless it exists. Returns False if a database with this name exists but does
    not belong to this warehouse."""
    found = warehouse_of_database(spark, name)
    if found is None:
        marked = warehouse.replace("\\", "\\\\").replace("'", "\\'")
        plain_sql(spark, f"CREATE DATABASE IF NOT EXISTS {_qualified(name)} WITH DBPROPERTIES ('{MARK}' = '{marked}')")
    return found in (None, warehouse)


def drop_database(spark: SparkSession, name: str, warehouse: str) -> None:
    """Drops the database of a schema. Does nothing if the database does not belong to this warehouse, or if the user
    has put objects into it."""
    if warehouse_of_database(spark, name) != warehouse:
        return
    if any(not table.isTemporary for table in spark.catalog.listTables(_qualified(name))):
        logger.warning("database %s is not dropped: it contains tables or views that are not rw_sql's", name)
        return
    if spark.catalog.currentDatabase() == name and spark.catalog.currentCatalog() == SPARK_CATALOG:
        plain_sql(spark, f"USE {_qualified(_DEFAULT)}")
    plain_sql(spark, f"DROP DATABASE IF EXISTS {_qualified(name)}")


def _qualified(name: str) -> str:
    return f"{SPARK_CATALOG}.{quoted_for_spark(name)}"
