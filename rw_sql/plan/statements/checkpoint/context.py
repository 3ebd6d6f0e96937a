"""Collects the facts for showing or rewriting a checkpoint: the checkpoint's content, and the bounds of its sources'
upstreams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.checkpoints.positions import DELTA, FILE, KAFKA
from rw_sql.connectors.registry import connector
from rw_sql.errors import (
    DUPLICATE_CLAUSE,
    INVALID_DEFINITION,
    MISSING_PROPERTY,
    UNKNOWN_SPLIT,
    UPSTREAM_UNREACHABLE,
    SqlError,
)
from rw_sql.model.options import options_of, visible
from rw_sql.plan.checks.sources import require_secret
from rw_sql.plan.ports.checkpoints import CheckpointLook
from rw_sql.plan.ports.upstreams import look_closely

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.checkpoints.checkpoint import Checkpoint, Split
    from rw_sql.checkpoints.delta_table import DeltaTable
    from rw_sql.checkpoints.file_lists import FileLists
    from rw_sql.connectors.base import Upstream
    from rw_sql.metastore import Snapshot
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import InjectCheckpointOffsets, ShowCheckpoint, SplitId

NO_BROKERS = "no properties.bootstrap.server"
NO_TABLE = "no table"
NO_ANSWER = "no answer"
NOT_THERE = "not there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One split that a statement names, with the split's source, and the split's name in that source.

    ``id`` is the shortest unambiguous name of the split in a statement: ``words:0`` or, with the source, ``1/words:0``.
    ``position`` is None for a new split.
    """

    id: str
    source: str
    local: str
    kind: str
    position: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectContext:
    """A checkpoint and its upstreams. ``upstream`` is None if the statement specifies no brokers.

    ``tables`` maps the names of Delta sources to their tables. ``lists`` maps the names of file sources to their lists
    of files.
    """

    look: CheckpointLook
    options: PlannedOptions = ()
    upstream: Upstream | None = None
    tables: Mapping[str, DeltaTable] = field(default_factory=dict)
    lists: Mapping[str, FileLists] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint to show or move."""
        return self.look.checkpoint

    def bounds(self, target: Target) -> tuple[int, int] | None:
        """The first and the last valid position in the upstream; None if unknown. The end of the upstream is a valid
        position."""
        match target.kind:
            case "kafka":
                seen = self.upstream.splits.get(target.local) if self.upstream is not None else None
                return (seen.start, seen.end) if seen is not None else None
            case "delta":
                table = self.tables.get(target.source)
                return (table.first, table.next) if table is not None else None
            case _:
                return 0, self.lists[target.source].next

    def doubt(self, target: Target) -> str:
        """The reason why the bounds of a split are unknown."""
        if target.kind == DELTA:
            return NO_TABLE
        if self.upstream is None:
            return NO_BROKERS
        return NO_ANSWER if not self.upstream.is_reachable else NOT_THERE

    def targets(self) -> tuple[Target, ...]:
        """All splits of the checkpoint."""
        return tuple(self._target(split) for split in self.checkpoint.splits)

    def _target(self, split: Split) -> Target:
        return Target(
            id=split.id,
            source=split.source,
            local=split.local,
            kind=self.checkpoint.source(split.source).kind,
            position=split.position,
        )

    def resolve(self, written: SplitId) -> Target:
        """The split to which a name in a statement refers. Raises SqlError UNKNOWN_SPLIT, whose hint lists the existing
        splits.

        A partition that the checkpoint does not contain is accepted if exactly one Kafka source reads its topic, or if
        the job has exactly one Kafka source.
        """
        name = written.id.strip()
        targets = self.targets()
        found = [target for target in targets if name in (target.id, f"{target.source}/{target.local}", target.local)]
        if not found and _is_number(name):
            found = self._by_number(targets, name)
        if len(found) == 1:
            return found[0]
        if len(found) > 1:
            raise SqlError(
                UNKNOWN_SPLIT,
                f'split "{name}" is read by several sources of the checkpoint',
                span=written.span,
                hint="write the source before the split: "
                f"{' or '.join(repr(f'{each.source}/{each.local}') for each in found)}",
            )
        new = self._new(name)
        if new is not None:
            return new
        listed = ", ".join(target.id for target in targets[:12]) or "none"
        raise SqlError(
            UNKNOWN_SPLIT,
            f'checkpoint {self.checkpoint.path!r} has no split "{name}"',
            span=written.span,
            hint=f"valid splits are: {listed}",
        )

    def _by_number(self, targets: Iterable[Target], number: str) -> list[Target]:
        """The split for a plain partition number, if the job of the checkpoint reads a single topic and nothing
        else."""
        targets = list(targets)
        topics = {(target.source, target.local.rpartition(":")[0]) for target in targets}
        if len(topics) != 1 or targets[0].kind != KAFKA:
            return []
        return [target for target in targets if target.local.rpartition(":")[2] == str(int(number))]

    def _new(self, name: str) -> Target | None:
        prefix, slash, local = name.rpartition("/")
        topic, colon, number = local.rpartition(":")
        if not colon or not topic or not _is_number(number):
            return None
        sources = [source.name for source in self.checkpoint.sources if source.kind == KAFKA]
        unnamed = sources if len(sources) == 1 else self._readers(topic)
        sources = [source for source in sources if source == prefix] if slash else unnamed
        if len(sources) != 1:
            return None
        local = f"{topic}:{int(number)}"
        id_ = local if unnamed == sources else f"{sources[0]}/{local}"
        return Target(id=id_, source=sources[0], local=local, kind=KAFKA, position=None)

    def _readers(self, topic: str) -> list[str]:
        """The names of the Kafka sources that have read a topic."""
        sources = (source for source in self.checkpoint.sources if source.kind == KAFKA)
        return [source.name for source in sources if any(split.startswith(f"{topic}:") for split in source.splits)]


def resolve_all(context: InjectContext, written: Iterable[SplitId]) -> tuple[Target, ...]:
    """The splits that a statement names. Raises SqlError for an unknown split, and for a split that is named twice."""
    found: dict[tuple[str, str], Target] = {}
    for split in written:
        target = context.resolve(split)
        if (target.source, target.local) in found:
            raise SqlError(
                DUPLICATE_CLAUSE,
                f'split "{split.id}" is named more than once',
                span=split.span,
                hint="omit one of the split's two values",
            )
        found[target.source, target.local] = target
    return tuple(found.values())


def look_around(
    statement: InjectCheckpointOffsets | ShowCheckpoint,
    snapshot: Snapshot,
    inspector: Inspector,
    named: tuple[SplitId, ...] = (),
) -> InjectContext:
    """Reads the checkpoint, and contacts every upstream for which the statement has connection settings."""
    try:
        found = inspector.checkpoints.look(statement.path)
    except SqlError as error:
        error.span = error.span or statement.path_span
        raise
    checkpoint = found.checkpoint
    options = options_of(snapshot, statement.options)
    require_secret(statement.options, connector("kafka").spec)
    topics = _topics(checkpoint, named)
    upstream = None
    if options and topics:
        options = (("topic", ",".join(topics)), *options)
        _require_bootstrap(statement, options)
        connector("kafka").check_options(visible(options))
        upstream = look_closely(inspector.upstreams, "kafka", options)
    elif options:
        raise SqlError(
            INVALID_DEFINITION,
            "the statement names brokers, but no source of the checkpoint reads Kafka",
            span=statement.options[0].key_place,
            hint=f"omit {statement.options[0].key}",
        )
    tables = _tables(statement, inspector, checkpoint)
    lists = {}
    for source in checkpoint.sources:
        if source.kind == FILE:
            lists[source.name] = inspector.checkpoints.file_lists(statement.path, source.name)
    return InjectContext(look=found, options=options, upstream=upstream, tables=tables, lists=lists)


def require_brokers(context: InjectContext, statement: InjectCheckpointOffsets) -> None:
    """Raises SqlError UPSTREAM_UNREACHABLE if the statement names brokers that do not respond."""
    upstream = context.upstream
    if upstream is not None and not upstream.is_reachable:
        raise SqlError(
            UPSTREAM_UNREACHABLE,
            f"the brokers do not answer: {upstream.error}",
            span=statement.options[0].key_place,
            hint="WITH (VALIDATE = false) writes the offsets without this check",
        )


def _require_bootstrap(statement: InjectCheckpointOffsets | ShowCheckpoint, options: PlannedOptions) -> None:
    if not any(key == "properties.bootstrap.server" for key, _ in options):
        raise SqlError(
            MISSING_PROPERTY,
            'missing property "properties.bootstrap.server"',
            span=statement.options[0].key_place,
            hint="add WITH (properties.bootstrap.server = 'host:9092')",
        )


def _topics(checkpoint: Checkpoint, named: tuple[SplitId, ...]) -> tuple[str, ...]:
    """The topics of the checkpoint, and further topics that the statement names."""
    known = [split for source in checkpoint.sources if source.kind == KAFKA for split in source.splits]
    written = [split.id.strip().rpartition("/")[2] for split in named] if known else []
    return tuple(dict.fromkeys(name.rpartition(":")[0] for name in (*known, *written) if ":" in name))


def _tables(
    statement: InjectCheckpointOffsets | ShowCheckpoint, inspector: Inspector, checkpoint: Checkpoint
) -> dict[str, DeltaTable]:
    """Maps the name of each Delta source to the table that the source reads, which is found by the table id in the
    source's offset. Only tables that the statement names are considered."""
    tables: dict[str, DeltaTable] = {}
    for path in statement.tables:
        try:
            table = inspector.checkpoints.table(path)
        except SqlError as error:
            error.span = error.span or statement.table_span
            raise
        readers = [source.name for source in checkpoint.sources if source.table == table.id]
        if not readers:
            ids = ", ".join(source.table for source in checkpoint.sources if source.table) or "none"
            raise SqlError(
                INVALID_DEFINITION,
                f"no source of the checkpoint reads table {path!r}",
                span=statement.table_span,
                hint=f"that table has the id {table.id}, but the checkpoint's sources read {ids}",
            )
        tables.update(dict.fromkeys(readers, table))
    return tables


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 11
