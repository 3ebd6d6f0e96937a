"""Computes the effect of a changed connection on the objects that use the connection, before the change is
committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from rw_sql.connectors.connection_types import connection_source, is_of_sources
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.definitions import definition_of
from rw_sql.model.options import selection, shown, source_options
from rw_sql.model.source_readers import readers_of
from rw_sql.model.split_status import OK, ORPHAN, identity_status, is_known_same, split_order
from rw_sql.plan.checks.columns import require_columns
from rw_sql.plan.checks.upstreams import STORED, require_upstream_of
from rw_sql.plan.effects.dependents import unfinished_backfills
from rw_sql.plan.effects.left_objects import notes_on_left_objects
from rw_sql.plan.effects.verdicts import UNREACHABLE, UNTOLD_SPLIT
from rw_sql.plan.result.plan import SplitPreview
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from rw_sql.connectors.base import SplitState, Upstream, UpstreamSplit
    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.model.options import PlannedOptions
    from rw_sql.model.source_readers import Reader
    from rw_sql.plan.ports.inspector import Inspector

Difference = tuple[str, str, str]
"""A property with its old and its new value. In place of a secret's value, the tuple contains the secret's name. The
value of an unset property is the empty string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of a changed connection on a source or sink.

    ``doubt`` is the reason why the object may have a different upstream or target after the change. If there is a
    doubt, the statement is unsafe. ``notices`` name the slot that the source would leave, and the views whose backfills
    need records of the upstream that the source would leave.
    """

    splits: tuple[SplitPreview, ...]
    doubt: str | None
    notices: tuple[str, ...] = ()


def differences(old: PlannedOptions, new: PlannedOptions) -> tuple[Difference, ...]:
    """Returns the properties whose old and new values differ. The properties in ``old`` come before the properties that
    only ``new`` contains."""
    before, after = shown(old), shown(new)
    return tuple(
        (key, before.get(key, ""), after.get(key, ""))
        for key in dict.fromkeys((*before, *after))
        if before.get(key) != after.get(key)
    )


def spell(key: str, old: str, new: str) -> str:
    """Returns the text that describes one difference to the user."""
    if not new:
        return f"{key} dropped (was {old})"
    return f"{key} = {new} (was {old})" if old else f"{key} = {new} (new)"


def may_move(spec: ConnectorSpec, changed: tuple[Difference, ...]) -> bool:
    """True if changing the given properties may lead to a different upstream or target. The result is False only if two
    conditions hold: the connector lists all of these properties as alterable, and no address among them changes its
    scheme, host, port or path."""
    return any(
        (known := spec.option(key)) is None
        or not known.is_alterable
        or (known.is_address and _address(old, known.default_port) != _address(new, known.default_port))
        for key, old, new in changed
    )


def _address(url: str, default_port: int | None) -> tuple[str | int | None, ...]:
    """The scheme, host, port and path of a URL. If the URL has no port, the result has the default port. The host is in
    lower case, and the path is percent-decoded. If ``url`` is not a valid URL with a host, the result contains only the
    text before ``?``."""
    scheme, _, rest = url.partition("://")
    try:
        parts = urlsplit(f"//{rest}")
        port = default_port if parts.port is None else parts.port
    except ValueError:
        return (url.partition("?")[0],)
    return (scheme, parts.hostname, port, unquote(parts.path)) if parts.hostname else (url.partition("?")[0],)


def may_be_elsewhere(spec: ConnectorSpec, old: PlannedOptions, new: PlannedOptions) -> bool:
    """True if the name of a split may refer, with the new properties, to a split of a different upstream than before.
    The result is False if only ``topic`` changes, because the name of a split includes its topic."""
    return may_move(spec, tuple(each for each in differences(old, new) if each[0] != "topic"))


def selects_others(spec: ConnectorSpec, old: PlannedOptions, new: PlannedOptions) -> bool:
    """True if the source would select different records within its splits with the new properties than with the old
    properties."""
    return selection(spec, shown(old)) != selection(spec, shown(new))


def unselected_notice(source: SourceRecord) -> str:
    """Returns the notice about a source that selects different records than before the change. The source's positions
    may already be after some of the newly selected records. The notice contains the statements that make the source
    read these records."""
    name = sql_name(source.name)
    return (
        "the records that only the new properties select are not read if they are before the source's positions; to "
        f"read them: PAUSE SOURCE {name}; INJECT SOURCE OFFSETS {name} TO EARLIEST ALLOW DUPLICATES; RESUME SOURCE "
        f"{name}"
    )


def effect_on(
    snapshot: Snapshot,
    moved: Snapshot,
    inspector: Inspector,
    source: SourceRecord,
    span: Span,
    *,
    is_validated: bool,
    may_move: bool,
    is_switchable: bool = True,
) -> Effect:
    """Returns the effect of a changed connection on a source. Examines the upstream that the source has in ``moved``,
    the catalog after the change. ``snapshot`` is the catalog before the change.

    If ``is_validated`` is True, raises SqlError if the upstream cannot be used or does not fit the source's columns.

    If ``is_switchable`` is True, the statement accepts VALIDATE, and the error's hint may suggest it. If ``may_move``
    is True, an upstream that does not report its identity counts as a different upstream.
    """
    options = source_options(moved, source)
    upstream = inspector.upstreams.look(source.connector, options)
    if is_validated:
        require_upstream_of(source, upstream, span, stored=STORED if is_switchable else "")
        columns = definition_of(source).columns
        require_columns(inspector, source.connector, options, columns, source.name, span, is_stored=True, of="source")
    splits: list[SplitPreview] = []
    doubts: dict[str, None] = {}
    notices: dict[str, None] = {}
    for reader in readers_of(moved, source):
        found = _effect_on_reader(moved, inspector, reader, upstream, may_move=may_move)
        splits += found.splits
        doubts |= dict.fromkeys(filter(None, (found.doubt,)))
        if found.doubt is not None:
            notices |= dict.fromkeys(unfinished_backfills(moved, inspector, reader, found.splits))
    before = snapshot.get(source.id)
    if isinstance(before, SourceRecord):
        left = source_options(snapshot, before)
        notices |= dict.fromkeys(notes_on_left_objects(inspector, moved, source, left, options))
    return Effect(splits=tuple(splits), doubt="; ".join(doubts) or None, notices=tuple(notices))


def _effect_on_reader(
    moved: Snapshot, inspector: Inspector, reader: Reader, upstream: Upstream, *, may_move: bool
) -> Effect:
    source, view = reader.source, reader.view.name if reader.view is not None else ""
    positions = inspector.positions.of(source.id, reader.fragment)
    assigned = sorted(moved.splits(reader.fragment), key=split_order)
    if not upstream.is_reachable:
        unseen = f"the upstream does not answer, so it may be another cluster: {upstream.error}"
        rows = [_row(split, positions.states.get(split), None, UNREACHABLE, view) for split in assigned]
        return Effect(splits=tuple(rows), doubt=unseen if positions.states and may_move else None)
    rows = []
    doubts: dict[str, None] = {}
    for split in assigned:
        state, seen = positions.states.get(split), upstream.splits.get(split)
        verdict = "NONE"
        if seen is None:
            verdict = ORPHAN
        elif state is not None and (status := identity_status(state, seen)) != OK:
            verdict = f"UNKNOWN ({status.lower().replace('_', ' ')})"
            if may_move:  # Without may_move, the source is already stalled before the change.
                doubts[f"{status}: the source stalls until RESET SOURCE SPLITS {sql_name(source.name)}"] = None
        elif state is not None and may_move and not is_known_same(state, seen):
            verdict = UNTOLD_SPLIT
            doubts["the brokers report no cluster id, so they may be another cluster"] = None
        rows.append(_row(split, state, seen, verdict, view))
    return Effect(splits=tuple(rows), doubt="; ".join(doubts) or None)


def another_target(inspector: Inspector, kind: str, old: PlannedOptions, new: PlannedOptions) -> str | None:
    """The reason why a sink may write to a different target after the change to its connection; None if the target is
    certainly unchanged."""
    if not is_of_sources(kind):
        return "the rows that the sink wrote stay in the old target; the new address may be another store"
    then = inspector.upstreams.look(connection_source(kind), old)
    now = inspector.upstreams.look(connection_source(kind), new)
    if not (then.cluster and now.cluster):
        return "the rows that the sink wrote stay in the old target; the new address may be another cluster"
    return (
        "OTHER_CLUSTER: the rows that the sink wrote stay in the old cluster" if then.cluster != now.cluster else None
    )


def _row(split: str, state: SplitState | None, seen: UpstreamSplit | None, verdict: str, view: str) -> SplitPreview:
    return SplitPreview(
        split=split,
        old=state.offset if state else None,
        new=state.offset if state and verdict == "NONE" else None,
        start=seen.start if seen else None,
        end=seen.end if seen else None,
        verdict=verdict,
        reader=view,
    )
