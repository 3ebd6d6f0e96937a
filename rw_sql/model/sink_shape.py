"""Derives the shape of a sink's output from the sink's definition: the columns, the keys, and the form in which changes
are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.sink import SinkShape
from rw_sql.model.definitions import option_text, sink_definition

if TYPE_CHECKING:
    from rw_sql.metastore.records import SinkRecord
    from rw_sql.syntax.statements import CreateSink

FORCE_APPEND_ONLY = "force_append_only"


def shape_of(sink: SinkRecord) -> SinkShape:
    """The shape of a sink in the catalog."""
    statement = sink_definition(sink.definition)
    return SinkShape(
        name=sink.name,
        type=sink.type,
        schema=sink.schema,
        encode=sink.encode,
        keys=sink.keys,
        encode_options=encode_options(statement),
        key_encode=key_encode(statement),
    )


def key_encode(statement: CreateSink) -> str | None:
    """The encoding of a sink's keys for ``SinkShape.key_encode``; None if it equals the encoding of the rows or is not
    specified."""
    clause = statement.format
    return None if clause is None or clause.key_encode in (None, clause.encode) else clause.key_encode


def encode_options(statement: CreateSink) -> tuple[tuple[str, str], ...]:
    """The options of ENCODE that control how rows are written. ``force_append_only`` is not one of them."""
    given = statement.format.options if statement.format else ()
    return tuple((option.key, option_text(option.value)) for option in given if option.key != FORCE_APPEND_ONLY)
