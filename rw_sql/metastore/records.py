"""Defines the objects of the catalog as frozen records. The table ``objects`` stores them as JSON in ``record``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rw_sql.metastore.refresh_records import RefreshRecord

DEFAULT_GROUP = "default"
"""The resource group of objects that name no group, and of objects that were created before groups existed."""

PARALLELISM = 2
"""The default number of partitions of a query's state. Each additional partition makes every batch slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """A source. ``definition`` is the canonical CREATE SOURCE statement; the other fields are derived from it.

    ``options`` is the WITH list as pairs (key, text), in the order of the statement. An option that uses a secret has
    the secret's name, never its value. ``uses`` are the ids of the source's connection and secrets. Each ``generation``
    of the source has its own log. ``birth`` contains the end offsets that the splits had when the source was created,
    in the format of :mod:`rw_sql.model.backfill_ranges`. ``snapshot`` is the epoch of the last statement that made the
    tables of a change data capture source repeat their snapshots; 0 if there was no such statement. ``added_columns``
    has a pair (name, id) for each column that was added later. An object with a lower id was created before the column
    and does not see it. ``resource_group`` is the group whose owner runs the source's job. ``group_since`` is the epoch
    of the statement that moved the source to this group; 0 if the source was created in this group. If ``keeps_reader``
    is true, the shared reader of a change data capture source runs even if no object reads the source. A replication
    slot without a reader would make the upstream keep its log without a limit. Therefore, if the upstream has a slot,
    the operation that removes the last object that reads the source sets ``keeps_reader``.
    """

    id: int
    name: str
    definition: str
    connector: str
    options: tuple[tuple[str, str], ...]
    is_shared: bool
    uses: tuple[int, ...] = ()
    generation: int = 1
    created_at_ms: int = 0
    birth: str = ""
    snapshot: int = 0
    added_columns: tuple[tuple[str, int], ...] = ()
    resource_group: str = DEFAULT_GROUP
    group_since: int = 0
    keeps_reader: bool = False
    kind: str = field(default="source", init=False)


UPSERT, COMBINED, SIGNED, CHANGES, KEYS, DIFF = "upsert", "combined", "signed", "changes", "keys", "diff"
"""The strategies for maintaining views.

COMBINED: combines the groups of each batch with the rows of the view's table, without any other state. UPSERT: keeps
the groups of an aggregation in Spark's state. SIGNED: aggregates changes, in which a new row has the sign 1 and an old
row has the sign -1. CHANGES: filters and projects the changed rows of one input. KEYS: recomputes the rows that a
change affects. DIFF: recomputes all rows and compares them with the stored rows.
"""

KEYED = "keyed"
"""The strategy for tables with a primary key. It applies the newest record of each key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """How a view's table is kept up to date. ``reason`` explains why CREATE MATERIALIZED VIEW chose ``strategy``.

    If ``strategy`` is empty, a view without keys appends the rows of its query, and a view with keys replaces the
    stored row of each key. ``query`` is the job's query if it differs from the view's query. ``hidden`` is the Spark
    schema, in JSON, of the additional columns of the job's query, which users' queries do not see. ``touched`` is a
    query that returns the values of the columns ``partition`` in changed input rows. The view's rows with these values
    are recomputed. ``is_one_row`` is true for an aggregation without GROUP BY, which returns a row even for empty
    input. ``combine`` has, for each column of a COMBINED view's table, the function that combines the values of two
    groups. ``derived`` is the query that computes the view's columns from the stored columns (see
    :mod:`rw_sql.syntax.query.combined_groups`).
    """

    strategy: str = ""
    reason: str = ""
    query: str = ""
    hidden: str = ""
    touched: str = ""
    partition: tuple[str, ...] = ()
    is_one_row: bool = False
    combine: tuple[str, ...] = ()
    derived: str = ""

    @property
    def is_recomputed(self) -> bool:
        """True if the view's job recomputes rows from the inputs. False if it updates rows from stored state."""
        return self.strategy in (KEYS, DIFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializedViewRecord:
    """A materialized view. ``inputs`` are the ids of the relations that the view's query reads.

    ``query`` is the view's query in Spark SQL. ``dialect`` is the dialect of the query in the definition, 'spark' or
    'risingwave'. ``schema`` is the view's Delta schema as Spark's JSON. ``keys`` are the columns that identify a row if
    rows are replaced, for example in an aggregation; empty if rows are only appended. If ``has_change_feed`` is true,
    the view's table has a change feed, because a sink or another view reads its changes. ``histories`` are the
    backfills of the view's sources, in the format of :mod:`rw_sql.model.backfill_ranges`. A source whose log the view
    reads from the beginning has no history. ``backfill_rate_limit`` is the maximum number of backfill records per
    second. None means no limit, and 0 stops the backfill. ``kept_generation`` is the earlier generation whose table and
    checkpoint are kept too; 0 means the current generation minus one. ``last_generation`` is the highest generation
    that ever existed, if it differs from the current generation. If a statement replaced the view's query, ``sees`` is
    the first id that was unused when the view got its current query. The query does not see columns that were added
    later. ``parallelism`` is the number of partitions of the state of the view's query; this number never changes
    within a generation. ``resource_group`` and ``group_since`` are as in :class:`SourceRecord`.
    """

    id: int
    name: str
    definition: str
    query: str
    inputs: tuple[int, ...]
    schema: str
    keys: tuple[str, ...] = ()
    dialect: str = "spark"
    generation: int = 1
    created_at_ms: int = 0
    has_change_feed: bool = False
    maintenance: Maintenance = Maintenance()
    histories: tuple[str, ...] = ()
    backfill_rate_limit: int | None = None
    kept_generation: int = 0
    last_generation: int = 0
    sees: int = 0
    parallelism: int = PARALLELISM
    resource_group: str = DEFAULT_GROUP
    group_since: int = 0
    kind: str = field(default="materialized_view", init=False)


OVERWRITE, IGNORE, IF_NOT_NULL = "overwrite", "ignore", "if_not_null"
"""The effects of inserting a row whose key already exists. OVERWRITE: the new row replaces the existing row. IGNORE:
the new row is ignored. IF_NOT_NULL: the new values that are not NULL replace the old values."""


class LivePosition(NamedTuple):
    """The place after which a table of a change data capture source reads changes from the source's log.

    ``since`` is the epoch of the statement that last set the source's position before the table was created. ``offset``
    is the source's position when the table was created or, for a table without a snapshot, the end of the server's log
    at that time. ``hour`` is the first hourly partition of the log that can contain later changes, in hours since 1970.
    ``split`` is the source's split; empty if unknown. ``run`` is the newest run of the source's reader when the table
    was created; 0 if there was no run, and -1 if rw_sql 0.1 created the table."""

    since: int
    offset: int
    hour: int
    split: str = ""
    run: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord(MaterializedViewRecord):
    """A table that reads from a source. Its rows are made from the source's records.

    The job of a table works like the job of a view.

    ``definition`` is the canonical CREATE TABLE statement. ``source_id`` is the id of the table's own source, which has
    the table's name and cannot be dropped without the table; None after DROP CONNECTOR. ``inputs`` has the id of the
    source that the table reads; empty after DROP CONNECTOR and for a refreshable table. ``query`` computes the table's
    columns from a row of the source. ``primary_key`` are the columns that identify a row. ``keys`` equals
    ``primary_key`` if rows are replaced, and is empty if rows are only appended. ``conflict`` is OVERWRITE, IGNORE or
    IF_NOT_NULL. An inserted row is ignored if its values of ``version_columns`` are older than the values of the
    existing row with the same key. ``added_columns`` has a pair (name, id) for each column that was added later. An
    object with a lower id is older than the column and does not see it. Only the table's files still contain
    ``dropped_columns``, and only the source's log still contains ``dropped_fields``, the fields of dropped columns.
    ``stored_names`` has a pair (name, name in the files) for each renamed column, because renaming does not rewrite
    files. A table of a change data capture source (``FROM source TABLE 'name'``) has no ``source_id``. Such a table
    reads only that source, from ``live_from``.
    """

    source_id: int | None = None
    primary_key: tuple[str, ...] = ()
    conflict: str = OVERWRITE
    version_columns: tuple[str, ...] = ()
    is_append_only: bool = False
    added_columns: tuple[tuple[str, int], ...] = ()
    dropped_columns: tuple[str, ...] = ()
    stored_names: tuple[tuple[str, str], ...] = ()
    dropped_fields: tuple[str, ...] = ()
    live_from: LivePosition | None = None
    kind: str = field(default="table", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaTableRecord:
    """A Delta table that a view or sink reads, and that rw_sql does not write.

    The catalog contains the record only while a view or sink reads the table.

    ``name`` is the table's name in the queries that Spark runs, and ``written`` is its name in statements. ``schema``
    is the schema of the table's rows, as Spark's JSON. If ``has_change_feed`` is false, views and sinks support only
    appends to the table.
    """

    id: int
    name: str
    written: str
    path: str
    schema: str
    has_change_feed: bool = False
    generation: int = 1
    kind: str = field(default="delta_table", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRecord:
    """A sink. ``definition`` is the canonical CREATE SINK statement; the other fields are derived from it.

    ``inputs`` are the ids of the objects that the sink reads. ``query`` is Spark SQL that reads these objects; empty if
    the sink writes one input unchanged. If ``replaces`` is true, the query aggregates, and a later row replaces an
    earlier row with the same key. ``schema`` is the schema of the sink's rows, as Spark's JSON. ``type`` is
    append-only, upsert or debezium. ``keys`` are the columns of the sink's primary key. ``starts`` has a pair (input
    id, version of the input's table after which the sink begins) for each input that the sink does not read from the
    beginning. A paused sink keeps its positions. ``parallelism`` is the number of partitions of the state of the sink's
    query. ``resource_group`` and ``group_since`` are as in :class:`SourceRecord`.
    """

    id: int
    name: str
    definition: str
    connector: str
    options: tuple[tuple[str, str], ...]
    inputs: tuple[int, ...]
    schema: str
    type: str
    encode: str | None = None
    keys: tuple[str, ...] = ()
    query: str = ""
    replaces: bool = False
    uses: tuple[int, ...] = ()
    starts: tuple[tuple[int, int], ...] = ()
    generation: int = 1
    created_at_ms: int = 0
    is_paused: bool = False
    pause_reason: str | None = None
    parallelism: int = PARALLELISM
    resource_group: str = DEFAULT_GROUP
    group_since: int = 0
    kind: str = field(default="sink", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRecord:
    """Options that sources and sinks can share. ``definition`` is the canonical CREATE CONNECTION statement."""

    id: int
    name: str
    definition: str
    connector: str
    uses: tuple[int, ...] = ()
    kind: str = field(default="connection", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRecord:
    """A secret. ``definition`` is the CREATE SECRET statement without the value; ``backend`` names the place where the
    value is stored.

    ``sealed`` is the encrypted value if the backend is ``meta``; None for other backends. ``repr`` omits ``sealed``.
    """

    id: int
    name: str
    definition: str
    backend: str
    sealed: str | None = field(default=None, repr=False)
    kind: str = field(default="secret", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRecord:
    """A schema other than ``public`` (which every warehouse has).

    The names of the schema's objects begin with the schema's own name: ``raw.orders``.
    """

    id: int
    name: str
    created_at_ms: int = 0
    kind: str = field(default="schema", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRecord:
    """A pause of the source ``source_id``; of all sources if it is None. A paused source does not run."""

    id: int
    name: str
    source_id: int | None
    reason: str | None = None
    kind: str = field(default="pause", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRecord:
    """A system parameter that ALTER SYSTEM SET has set. ``value`` is its value as text."""

    id: int
    name: str
    value: str
    kind: str = field(default="parameter", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindRecord:
    """The last REWIND of a source.

    The REWIND with the operation number ``epoch`` restores the state before the operation ``operation``. The source's
    dependents do not run until the owner has completed the REWIND.
    """

    id: int
    name: str
    source_id: int
    operation: int
    epoch: int
    kind: str = field(default="rewind", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildRecord:
    """The rebuild of a view. The new table replaces the view's table after the new table has caught up.

    ``histories`` are the backfills of the new table, as in :class:`MaterializedViewRecord`. ``created_at_ms`` is 0 in
    the records of older versions of rw_sql, which did not record the time of creation. ``view`` is the view's new
    record if the rebuild changes the query of the view or of a view that it reads; None if the queries do not change.
    ``parallelism`` is the number of state partitions of the new table's query; 0 means that of the present query.
    """

    id: int
    name: str
    view_id: int
    generation: int
    histories: tuple[str, ...] = ()
    created_at_ms: int = 0
    view: MaterializedViewRecord | None = None
    parallelism: int = 0
    kind: str = field(default="rebuild", init=False)


ObjectRecord = (
    SourceRecord
    | MaterializedViewRecord
    | TableRecord
    | DeltaTableRecord
    | SinkRecord
    | ConnectionRecord
    | SecretRecord
    | SchemaRecord
    | PauseRecord
    | ParameterRecord
    | RewindRecord
    | RebuildRecord
    | RefreshRecord
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedSplit:
    """A split that is assigned to a fragment. ``epoch`` is the epoch of the statement that assigned the split."""

    fragment: str
    split: str
    epoch: int


FORGOTTEN = ""
"""The stored state of a split whose position a statement reset while the upstream was unreachable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """A split's position that a statement has set. ``state`` is the connector's JSON, or FORGOTTEN.

    ``epoch`` is the statement's epoch, and ``log_version`` is the version of the fragment's log at that time. The
    position advances with each commit to the log after ``log_version`` by a run that started at or after ``epoch``.
    """

    fragment: str
    split: str
    state: str
    epoch: int
    log_version: int = -1


# An operation consists of the following changes. The store adds the before-image to each operation. ``change`` is the
# name of the class in JSON.


@dataclass(frozen=True, slots=True, kw_only=True)
class PutObject:
    """Creates an object or replaces its record."""

    change: str = field(default="put_object", init=False)
    record: ObjectRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class DropObject:
    """Removes an object."""

    change: str = field(default="drop_object", init=False)
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignSplits:
    """Assigns splits to a fragment."""

    change: str = field(default="assign_splits", init=False)
    fragment: str
    splits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnassignSplits:
    """Unassigns splits of a fragment. The splits' states are kept."""

    change: str = field(default="unassign_splits", init=False)
    fragment: str
    splits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PutSplitStates:
    """Sets positions. ``states`` maps each split to the connector's JSON."""

    change: str = field(default="put_split_states", init=False)
    fragment: str
    states: Mapping[str, str]
    log_version: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetSplitStates:
    """Removes the positions of splits."""

    change: str = field(default="forget_split_states", init=False)
    fragment: str
    splits: tuple[str, ...]


Change = PutObject | DropObject | AssignSplits | UnassignSplits | PutSplitStates | ForgetSplitStates


DISCOVERY, REWIND, INJECT_CHECKPOINT = "DISCOVER SPLITS", "REWIND SOURCE", "INJECT CHECKPOINT OFFSETS"
UNDO = "UNDO OPERATION"
"""Some kinds of operations. DISCOVERY: the owner has found new splits. REWIND: a statement rewound a source.
INJECT_CHECKPOINT: a statement rewrote another Spark job's checkpoint. UNDO: a statement undid an earlier operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A change to the catalog before its commit. ``statement`` is the canonical statement without secret values.

    ``kind`` is the statement's name, such as ``CREATE SOURCE`` or ``RESET SOURCE SPLITS``. ``objects`` are the names of
    all affected objects, including dependents. ``plan`` is the preview that EXPLAIN shows. ``prediction`` is the
    predicted effect as JSON. SHOW SOURCE CONTINUITY compares the prediction with the records that were later read.
    """

    kind: str
    statement: str
    objects: tuple[str, ...]
    changes: tuple[Change, ...]
    is_unsafe: bool = False
    reason: str | None = None
    plan: str = ""
    prediction: str | None = None
    actor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRecord:
    """A committed operation from the table ``operations``. ``changes`` and ``before`` are JSON. Times are in
    milliseconds.

    ``outcome`` is 'applied', 'committed' or 'failed: …'. It is None if no outcome is recorded yet.
    """

    epoch: int
    kind: str
    statement: str
    objects: tuple[str, ...]
    is_unsafe: bool
    actor: str
    at_ms: int
    reason: str | None
    plan: str
    changes: str
    before: str
    prediction: str | None
    outcome: str | None = None
    duration_ms: int | None = None
