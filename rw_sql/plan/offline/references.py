"""Finds the references in a statement. These are the objects on which the statement depends, and the splits that the
statement names."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from rw_sql.metastore.records import AssignSplits, PutSplitStates
from rw_sql.model.options import source_options, visible
from rw_sql.model.source_readers import readers_of
from rw_sql.plan.offline.inspector import ASSUMED_OFFSET
from rw_sql.plan.result.steps import after
from rw_sql.syntax.statements import (
    ConnectionValue,
    InjectSourceOffsets,
    InjectValues,
    Name,
    Query,
    ResetSourceSplits,
    SecretValue,
    SkipRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.connectors.base import Connector
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.syntax.statements import Statement

_RELATIONS = ("table", "source", "materialized_view", "sink")


def named_ids(snapshot: Snapshot, statement: Statement, tables: tuple[str, ...]) -> frozenset[int]:
    """The ids of the catalog objects to which a statement refers. ``tables`` are the relations that the statement's
    query reads."""
    found: set[int] = set()
    for value in _values(statement):
        match value:
            case SecretValue(secret=name):
                kinds: tuple[str, ...] = ("secret",)
            case ConnectionValue(connection=name):
                kinds = ("connection",)
            case Name():
                name = value
                kinds = (*_RELATIONS, *_of_words(statement))
            case _:
                continue
        found |= {record.id for kind in kinds if (record := snapshot.find(kind, name.key)) is not None}
    found |= {r.id for table in tables for kind in _RELATIONS if (r := snapshot.find(kind, table)) is not None}
    return frozenset(found)


def _of_words(statement: Statement) -> tuple[str, ...]:
    word = type(statement).__name__
    kind = getattr(statement, "kind", "")
    return tuple(k for k in ("connection", "secret") if k in word.lower() or kind == k.upper())


def _values(holder: Any) -> Iterator[object]:
    for slot in fields(holder):
        value = getattr(holder, slot.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Query) or not hasattr(part, "__dataclass_fields__"):
                continue
            yield part
            if not isinstance(part, Name):
                yield from _values(part)


def with_named_splits(snapshot: Snapshot, statement: Statement) -> Snapshot:
    """Adds to the catalog the splits that a statement names, if the catalog knows no split of their topic.

    If the script itself creates the source, the catalog does not contain its splits, because only the upstream can list
    them.
    """
    if not isinstance(statement, InjectSourceOffsets | ResetSourceSplits | SkipRecord):
        return snapshot
    source = snapshot.find("source", statement.name.key)
    if source is None:
        return snapshot
    written = _written(statement)
    changes: list[Change] = []
    try:
        options = visible(source_options(snapshot, source))
        kind = connector(source.connector)
        for reader in readers_of(snapshot, source):
            assigned = tuple(snapshot.splits(reader.fragment))
            if new := _splits(kind, options, written, assigned):
                states = {s: kind.encode_state(SplitState(split=s, offset=ASSUMED_OFFSET)) for s in new}
                changes.append(AssignSplits(fragment=reader.fragment, splits=new))
                changes.append(PutSplitStates(fragment=reader.fragment, states=states, log_version=0))
    except SqlError:
        return snapshot  # the definition of the source has errors
    return after(snapshot, tuple(changes)) if changes else snapshot


def _splits(
    kind: Connector, options: dict[str, str], written: tuple[str, ...], assigned: tuple[str, ...]
) -> tuple[str, ...]:
    known = {kind.split_topic(split) for split in assigned}
    unknown = [topic for topic in kind.named_topics(options) if topic not in known]
    found: dict[str, None] = {}
    for texts in (written, [f"{topic}:0" if topic else "0" for topic in unknown]):
        for text in texts:
            try:
                split = kind.resolve_split(options, text)
            except SqlError:
                continue
            if kind.split_topic(split) in unknown:
                found[split] = None
        if found:
            break
    return tuple(found)


def topics_hint(snapshot: Snapshot, statement: Statement) -> str | None:
    """The hint for a statement that names a split outside the source's topics. The hint lists these topics, because
    their splits are not known."""
    name = getattr(statement, "name", None)
    source = snapshot.find("source", name.key) if name is not None else None
    if source is None:
        return None
    topics = connector(source.connector).named_topics(visible(source_options(snapshot, source)))
    return f"its topics are: {', '.join(topics)}" if any(topics) else None


def _written(statement: InjectSourceOffsets | ResetSourceSplits | SkipRecord) -> tuple[str, ...]:
    if isinstance(statement, SkipRecord):
        return (statement.split.id,)
    entries: tuple[str, ...] = ()
    if isinstance(statement, InjectSourceOffsets) and isinstance(statement.target, InjectValues):
        entries = tuple(entry.split.id for entry in statement.target.entries)
    return (*(split.id for split in statement.splits), *entries)
