"""Rewrites names of rw_sql objects in Spark statements, so that Spark can resolve them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.metastore.records import SourceRecord
from rw_sql.model.object_lookup import RELATION_KINDS, SCHEMA_ALIAS, find_relation
from rw_sql.plan.statements.session.search_path import DEFAULT_PATH
from rw_sql.runtime.spark.databases import SPARK_CATALOG
from rw_sql.syntax.dialect.markers import without_fields
from rw_sql.syntax.lexing.identifiers import PUBLIC, quoted_for_spark
from rw_sql.syntax.query.qualify import written_relations

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.runtime.sql.catalog_views import SparkViews

_READS = re.compile(r"\s*(?:EXPLAIN|SELECT|WITH|FROM|INSERT|CREATE|MERGE|CACHE|TABLE|\()", re.IGNORECASE)


def with_spark_names(snapshot: Snapshot, text: str, path: tuple[str, ...], views: SparkViews) -> str:
    """Replaces those names of rw_sql objects in a statement that Spark could not resolve.

    An unqualified name that the search path resolves gets its schema's Spark database as a prefix. A prefix ``public``
    is replaced with the database of ``public``, because Spark has no database of the name ``public``. A qualified name
    of a temporary view becomes one quoted word. The following objects are temporary views: sources, objects whose names
    Spark accepts only for temporary views, and objects whose names another warehouse already uses in the same Spark
    context.
    """
    if not _READS.match(text) or not _may_need_names(snapshot, text, path, views):
        return text
    for parts, start, end, has_alias in reversed(written_relations(without_fields(text))):
        key = _key(snapshot, parts, path, views)
        record = None if key is None else find_folded(snapshot, key)
        if record is None:
            continue
        key = record.name
        if isinstance(record, SourceRecord) or views.is_odd(key):
            if len(parts) == 1 and parts[0].lower() == key.lower():
                continue  # Spark finds the temporary view by this name.
            alias = "" if has_alias else f" AS {quoted_for_spark(parts[-1])}"
            text = f"{text[:start]}{quoted_for_spark(key)}{alias}{text[end:]}"
        elif len(parts) == 1 or parts[0].lower() == SCHEMA_ALIAS:
            schema, _, last = key.rpartition(".")
            database = views.warehouse_database(schema or PUBLIC)
            text = f"{text[:start]}{quoted_for_spark(database)}.{quoted_for_spark(last)}{text[end:]}"
    return text


def _may_need_names(snapshot: Snapshot, text: str, path: tuple[str, ...], views: SparkViews) -> bool:
    """False if Spark certainly resolves all names in ``text`` without a replacement. Does not parse ``text``."""
    if path != DEFAULT_PATH or SCHEMA_ALIAS in text.lower():
        return True
    if "." in text and views.has_taken:
        return True
    has_schemas = bool(snapshot.all("schema"))
    if "`" in text and "." in text and (has_schemas or views.has_odd):
        return True  # Only a quoted name can be the name of a temporary view, and only a qualified name is rewritten.
    return has_schemas and any("." in source.name for source in snapshot.all("source"))


def find_folded(snapshot: Snapshot, key: str) -> ObjectRecord | None:
    """The table, source or view with the name ``key``. If no object has exactly this name, the result is an object
    whose name differs only in upper and lower case, which Spark does not distinguish. None if there is no such
    object."""
    exact = find_relation(snapshot, key)
    if exact is not None:
        return exact
    folded = key.lower()
    return next(
        (record for kind in RELATION_KINDS for record in snapshot.all(kind) if record.name.lower() == folded), None
    )


def _key(snapshot: Snapshot, parts: tuple[str, ...], path: tuple[str, ...], views: SparkViews) -> str | None:
    """Converts the parts of a name in a statement to a name in the catalog; None if the name must not be replaced."""
    if len(parts) == 3 and parts[0].lower() == SPARK_CATALOG:
        parts = parts[1:]
    if len(parts) == 2:
        schema, last = parts[0].lower(), parts[1]
        if snapshot.find("schema", schema) is not None:
            return f"{schema}.{last}"
        is_alias = schema == SCHEMA_ALIAS and not views.has_users_database(SCHEMA_ALIAS)
        # Another name in this database may be the name of an object of the user.
        return last if is_alias or (schema == views.database.lower() and views.is_odd(last)) else None
    if len(parts) > 2 or path == DEFAULT_PATH or views.is_temporary(parts[0]):
        return None
    for schema in path:
        key = parts[0] if schema == PUBLIC else f"{schema}.{parts[0]}"
        if any(snapshot.find(kind, key) is not None for kind in RELATION_KINDS):
            return key
    return None
