"""Determines how changes to the catalog affect sinks. The previews of UNDO and of blocks show these effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.metastore.records import ConnectionRecord, SinkRecord
from rw_sql.model.definitions import sink_definition
from rw_sql.model.object_lookup import spoken
from rw_sql.model.options import plan_options
from rw_sql.plan.effects.connection_impact import another_target, differences, may_move, spell
from rw_sql.plan.result.plan import Preview, ResultRow
from rw_sql.plan.statements.common import look_at_sink
from rw_sql.plan.statements.connection.connected_object import connected_spec, connection_type_of
from rw_sql.syntax.statements import ConnectionValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.plan.ports.inspector import Inspector

_KEY = "connection"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkImpact:
    """The effect on a sink whose properties change.

    ``doubt`` is the reason why, after the change, the sink may write to a different target or be unable to write.
    """

    sink: SinkRecord
    preview: Preview
    doubt: str | None

    @property
    def answers(self) -> tuple[ResultRow, ...]:
        """The result rows that describe the effect on the sink."""
        rows = [
            ResultRow(object=self.sink.name, change="ALTERED", detail=spell(*each)) for each in self.preview.properties
        ]
        if self.doubt is not None:
            rows.append(ResultRow(object=self.sink.name, change="NOTICE", detail=self.doubt))
        return tuple(rows)


def sink_impacts_of(
    snapshot: Snapshot, then: Snapshot, inspector: Inspector, ids: Iterable[int]
) -> tuple[SinkImpact, ...]:
    """Returns the effects of the changes on the sinks among the given objects, and on the sinks whose connection is one
    of the given objects. The result is sorted by name.

    ``then`` is the catalog after the changes. Sinks whose properties do not change are left out.
    """
    found: dict[int, SinkRecord] = {}
    for id_ in ids:
        record = then.get(id_)
        users = then.users_of(id_) if isinstance(record, ConnectionRecord) else (record,)
        found |= {user.id: user for user in users if isinstance(user, SinkRecord)}
    moves: list[SinkImpact] = []
    for sink in sorted(found.values(), key=lambda record: record.name):
        before = snapshot.get(sink.id)
        if isinstance(before, SinkRecord):
            move = _move(snapshot, then, inspector, before, sink)
            if move.preview.properties:
                moves.append(move)
    return tuple(moves)


def _move(snapshot: Snapshot, then: Snapshot, inspector: Inspector, before: SinkRecord, sink: SinkRecord) -> SinkImpact:
    old, new = (
        plan_options(catalog, sink_definition(record.definition))
        for catalog, record in ((snapshot, before), (then, sink))
    )
    differs = differences(old, new)
    names = _connection_name(before), _connection_name(sink)
    doubt = None
    if may_move(connected_spec(sink), differs):
        doubt = another_target(inspector, connection_type_of(sink), old, new)
    if differs and doubt is None:
        target = look_at_sink(then, inspector, sink)
        doubt = target.error and f"its target does not answer: {target.error}"
        doubt = doubt or (target.missing and f"its target has no {target.missing}")
    return SinkImpact(
        sink=sink,
        preview=Preview(
            title=f"sink {sink.name}",
            dependents=tuple(f"{spoken(d.kind)} {d.name}" for d in snapshot.dependents_of(sink.id)),
            properties=(*(((_KEY, *names),) if names[0] != names[1] else ()), *differs),
            notices=(doubt,) if doubt else (),
        ),
        doubt=doubt or None,
    )


def _connection_name(sink: SinkRecord) -> str:
    options = sink_definition(sink.definition).options
    named = (option.value.connection for option in options if isinstance(option.value, ConnectionValue))
    return next((str(name) for name in named), "NONE")
