"""Rewrites names of rw_sql objects in Spark statements, so that Spark can resolve them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.metastore.records import SourceRecord
from rw_sql.model.names import RELATION_KINDS, find_relation
from rw_sql.plan.statements.session.search_path import DEFAULT_PATH
from rw_sql.syntax.lexing.identifiers import PUBLIC, quoted_for_spark
from rw_sql.syntax.query.qualify import written_relations

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.sql.catalog_views import SparkViews

_READS = re.compile(r"\s*(?:EXPLAIN|SELECT|WITH|FROM|INSERT|CREATE|MERGE|CACHE|TABLE|\()", re.IGNORECASE)


def with_spark_names(snapshot: Snapshot, text: str, path: tuple[str, ...], views: SparkViews) -> str:
    """Replaces the names that Spark could not resolve.

    An unqualified name that is found through the search path is qualified by its database. The name of a source
    outside ``public`` becomes a single word: the name of the temporary view through which the source is read. If the
    warehouse has no schemas, the statement is returned unchanged.
    """
    if not snapshot.all("schema") or not _READS.match(text):
        return text
    if path == DEFAULT_PATH and not any("." in source.name for source in snapshot.all("source")):
        return text
    for parts, start, end, has_alias in reversed(written_relations(text)):
        key = _key(snapshot, parts, path, views)
        record = None if key is None else find_relation(snapshot, key)
        if key is None or record is None:
            continue
        if isinstance(record, SourceRecord):
            if "." not in key:
                continue
            alias = "" if has_alias else f" AS {quoted_for_spark(parts[-1])}"
            text = f"{text[:start]}{quoted_for_spark(key)}{alias}{text[end:]}"
        elif len(parts) == 1:
            schema, _, last = key.rpartition(".")
            database = views.warehouse_database(schema or PUBLIC)
            text = f"{text[:start]}{quoted_for_spark(database)}.{quoted_for_spark(last)}{text[end:]}"
    return text


def _key(snapshot: Snapshot, parts: tuple[str, ...], path: tuple[str, ...], views: SparkViews) -> str | None:
    """Converts a written name to a name in the catalog; None if Spark can resolve the name itself."""
    if len(parts) == 2:
        return ".".join(parts) if snapshot.find("schema", parts[0]) is not None else None
    if len(parts) > 2 or path == DEFAULT_PATH or views.is_temporary(parts[0]):
        return None
    for schema in path:
        key = parts[0] if schema == PUBLIC else f"{schema}.{parts[0]}"
        if any(snapshot.find(kind, key) is not None for kind in RELATION_KINDS):
            return key
    return None
