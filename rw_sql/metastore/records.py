"""What the metastore holds, as frozen records. Stored as JSON in the ``record`` column of ``objects``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.metastore.refresh_records import RefreshRecord

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """A source. ``definition`` is its canonical CREATE SOURCE text; the other fields follow from it.

    ``options`` is the WITH list as (key, text) pairs in the order written, references by name; secret values are
    never in it. ``uses`` are the ids of its connection and secrets. A new ``generation`` has a new log.
    ``birth`` tells where its splits ended when it was made, as :mod:`rw_sql.model.backfill_ranges` writes it.
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
    kind: str = field(default="source", init=False)


UPSERT, SIGNED, CHANGES, KEYS, DIFF = "upsert", "signed", "changes", "keys", "diff"
"""The strategies of views: groups that Spark keeps; groups over changes, each with a sign; changed rows of one input,
filtered and projected; what changed rows touch, computed again; all of it computed again and compared."""

KEYED = "keyed"
"""The strategy of tables with a primary key: what became of each key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """How a view's table is kept up to date; decided when the view is made, ``reason`` says why.

    ``strategy`` is empty where the view's keys tell: without any its query's rows are appended, else they replace those
    of their keys. ``query`` is what the job runs where that is not the view's own query: it has the ``hidden`` columns
    (a Spark schema in JSON) which the table has beside the view's. ``touched`` is a query for the values of the columns
    ``partition`` in changed rows of the inputs: the view's rows of these are to be computed again. ``is_one_row``: an
    aggregation without groups, which has a row of nothing too.
    """

    strategy: str = ""
    reason: str = ""
    query: str = ""
    hidden: str = ""
    touched: str = ""
    partition: tuple[str, ...] = ()
    is_one_row: bool = False

    @property
    def is_recomputed(self) -> bool:
        """Whether rows are computed again from the inputs, not from what was kept of them."""
        return self.strategy in (KEYS, DIFF)

    @property
    def reads_changes(self) -> bool:
        """Whether the job follows how the rows of its inputs change, not only those that are added."""
        return self.strategy in (SIGNED, CHANGES, KEYS, DIFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializedViewRecord:
    """A materialized view. ``inputs`` are the ids of the sources and views its query reads.

    ``query`` is Spark SQL; ``dialect`` tells what the definition's query is written in, 'spark' or 'risingwave'.
    ``schema`` is its Delta schema as Spark's JSON. ``keys`` are the columns that identify a row where rows are
    replaced (aggregates); empty where they are only appended. ``has_change_feed``: its table keeps the changes of its
    rows, since a sink or another view reads them. ``histories`` fix what came before the view of those sources whose
    log it does not just read from the beginning, as :mod:`rw_sql.model.backfill_ranges` writes them.
    ``backfill_rate_limit`` is how many records of them it reads a second (None: no limit; 0: none).
    ``kept_generation`` is the generation beside the view's own whose table and checkpoint are kept, since it served
    last (0: the one before); ``last_generation`` is the newest there ever was, where that is not the view's own.
    ``sees`` is the first id that was not given away when it got its query, where that was after it was made.
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
    kind: str = field(default="materialized_view", init=False)


OVERWRITE, IGNORE, IF_NOT_NULL = "overwrite", "ignore", "if_not_null"
"""What becomes of a row whose key a table has: it takes the old one's place, it is left out, or its values that are
not null take the places of the old ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord(MaterializedViewRecord):
    """A table with a connector: what the records of its source come to. It is kept as a view over that source is.

    ``definition`` is its canonical CREATE TABLE text. ``source_id`` is its associated source, which has its name and
    cannot be dropped without it; None once DROP CONNECTOR took it away. ``inputs`` are that source, or none; ``query``
    gives the table's columns of a row of the source. ``primary_key`` are the columns that identify a row, ``keys`` the
    same where rows are replaced, and empty where they are only appended. ``conflict`` is OVERWRITE, IGNORE or
    IF_NOT_NULL; a row whose ``version_columns`` are older than those of the row with its key is left out.
    ``added_columns`` are (name, id): objects with lower ids were made before that column came, and do not see it.
    ``dropped_columns`` are no longer the table's, but its files have them, and ``dropped_fields`` no longer the
    source's, but its log has them; ``stored_names`` are (name, name in the files) of those columns that are called
    otherwise there: renaming one rewrites no file.
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
    kind: str = field(default="table", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaTableRecord:
    """A Delta table of the user's own that a view or sink reads: in the catalog as long as one does.

    ``name`` is what it is called in the queries that Spark runs, ``written`` how a statement names it; ``schema`` is
    that of its rows, as Spark's JSON. Without ``has_change_feed`` rows can only be appended to it.
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
    """A sink. ``definition`` is its canonical CREATE SINK text; the other fields follow from it.

    ``inputs`` are the ids of what it reads; ``query`` is Spark SQL over them, empty where it takes one input as it is;
    ``replaces``: the query aggregates, so that later rows of a key take the place of earlier ones.
    ``schema`` is that of its rows, as Spark's JSON; ``type`` is append-only, upsert or debezium; ``keys`` are the
    columns of its primary key. ``starts`` are (input id, version of its table after which the sink begins), for those
    that it does not read from the beginning. A paused sink keeps its place.
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
    kind: str = field(default="sink", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRecord:
    """A connection: options that sources and sinks share. ``definition`` is its canonical CREATE CONNECTION text."""

    id: int
    name: str
    definition: str
    connector: str
    uses: tuple[int, ...] = ()
    kind: str = field(default="connection", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRecord:
    """A secret. ``definition`` is its CREATE SECRET text without the value; ``backend`` says where that is kept.

    ``sealed`` is the encrypted value of backend ``meta``, None for the others; it is in no ``repr``.
    """

    id: int
    name: str
    definition: str
    backend: str
    sealed: str | None = field(default=None, repr=False)
    kind: str = field(default="secret", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRecord:
    """A hold on one source (``source_id``) or on all (None). A source runs only if none holds it."""

    id: int
    name: str
    source_id: int | None
    reason: str | None = None
    kind: str = field(default="pause", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRecord:
    """A system parameter set by ALTER SYSTEM SET; ``value`` is its text."""

    id: int
    name: str
    value: str
    kind: str = field(default="parameter", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindRecord:
    """The newest REWIND of a source: it goes back to just before ``operation``, and is itself the one with ``epoch``.

    What reads the source runs again once the owner has carried it out.
    """

    id: int
    name: str
    source_id: int
    operation: int
    epoch: int
    kind: str = field(default="rewind", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildRecord:
    """A view that is being made anew while its old rows serve: what takes their place once it has caught up.

    ``histories`` are those of the new one, as in :class:`MaterializedViewRecord`; ``created_at_ms`` is 0 in rebuilds
    of before they told it. ``view`` is the new one where it has another query, or reads one that has; None where it is
    only made anew.
    """

    id: int
    name: str
    view_id: int
    generation: int
    histories: tuple[str, ...] = ()
    created_at_ms: int = 0
    view: MaterializedViewRecord | None = None
    kind: str = field(default="rebuild", init=False)


ObjectRecord = (
    SourceRecord
    | MaterializedViewRecord
    | TableRecord
    | DeltaTableRecord
    | SinkRecord
    | ConnectionRecord
    | SecretRecord
    | PauseRecord
    | ParameterRecord
    | RewindRecord
    | RebuildRecord
    | RefreshRecord
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedSplit:
    """A split that a fragment reads, since the statement with this epoch."""

    fragment: str
    split: str
    epoch: int


FORGOTTEN = ""
"""The state of a split that a statement made forget its position, while its upstream could not be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """A split's position as a statement set it: ``state`` is the connector's JSON (or FORGOTTEN), ``epoch`` its own.

    ``log_version`` is the version of the fragment's log when it was set: commits after it, of runs that started at or
    after ``epoch``, move the position on.
    """

    fragment: str
    split: str
    state: str
    epoch: int
    log_version: int = -1


# What one operation changes. The store adds the before-images.


@dataclass(frozen=True, slots=True, kw_only=True)
class PutObject:
    """Creates an object or replaces its record."""

    record: ObjectRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class DropObject:
    """Removes an object."""

    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignSplits:
    """Adds splits to those a fragment reads."""

    fragment: str
    splits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnassignSplits:
    """Takes splits from those a fragment reads; their states stay."""

    fragment: str
    splits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PutSplitStates:
    """Sets positions: split → the connector's JSON."""

    fragment: str
    states: Mapping[str, str]
    log_version: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetSplitStates:
    """Removes positions."""

    fragment: str
    splits: tuple[str, ...]


Change = PutObject | DropObject | AssignSplits | UnassignSplits | PutSplitStates | ForgetSplitStates


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One statement that changes anything, before it is committed. ``statement`` is canonical and redacted.

    ``kind`` is the statement's words (``CREATE SOURCE``, ``UNSAFE SET``, ``RESET SOURCE SPLITS``); ``objects`` the
    names it affects, dependents included. ``plan`` is EXPLAIN's text. ``prediction`` is JSON for the proof afterwards.
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
    """A committed operation as the log of record holds it. ``changes``, ``before`` are JSON; times are milliseconds.

    ``outcome`` is None while nobody has reported one, else 'applied', 'committed' or 'failed: …'.
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
