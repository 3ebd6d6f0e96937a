"""Defines the plan of a statement as data. A plan contains the operation to commit, the preview, and the result
rows."""

from __future__ import annotations

from dataclasses import dataclass

from rw_sql.metastore.records import Operation
from rw_sql.plan.result.external_actions import Effect
from rw_sql.plan.result.graph import Graph
from rw_sql.plan.result.steps import Step
from rw_sql.syntax.statements import Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """One row of a statement's result. ``change`` is a word such as CREATED, ALTERED, NOTHING, NOTICE."""

    object: str
    change: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPreview:
    """One split before and after an operation: the next offset to read, the upstream's bounds, and the verdict. Unknown
    numbers are None.

    ``duplicates`` and ``gaps`` are the verdict's counts of records. If ``is_exact`` is False, these counts are upper
    limits. If the preview has the splits of several direct readers, ``reader`` is the name of the reader's view. If the
    upstream does not write offsets as numbers, ``written`` are the old offset, the new offset and the bounds in the
    upstream's notation. ``sizes`` are the numbers of repeated and skipped bytes, if the offsets are not themselves byte
    positions.
    """

    split: str
    old: int | None
    new: int | None
    start: int | None
    end: int | None
    verdict: str
    duplicates: int = 0
    gaps: int = 0
    is_exact: bool = True
    reader: str = ""
    written: tuple[str, str, str] | None = None
    sizes: tuple[int, int] | None = None

    @property
    def shown(self) -> tuple[int, int]:
        """The numbers of repeated and skipped records, as shown in a preview."""
        if self.sizes is None:
            return self.duplicates, self.gaps
        # A corrected row has no effect, whatever its number of bytes was.
        return self.sizes[0] if self.duplicates else 0, self.sizes[1] if self.gaps else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The information that a user sees before confirming a statement: the dependents, and the effect on each split and
    property.

    If several objects are affected, each has its own preview in ``parts``, and the other fields are empty. ``epoch`` is
    the catalog's epoch. ``is_checkpoint`` is True if the preview is about the checkpoint of a foreign job. In this
    case, ``dependents`` are the stateful operators of the job's query.
    """

    title: str
    epoch: int | None = None
    dependents: tuple[str, ...] = ()
    properties: tuple[tuple[str, str, str], ...] = ()
    splits: tuple[SplitPreview, ...] = ()
    notices: tuple[str, ...] = ()
    parts: tuple[Preview, ...] = ()
    is_checkpoint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows that a statement returns. ``columns`` are pairs (name, Spark DDL type). Every row has one value per
    column."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of one statement. If the plan has no ``operation``, nothing is committed.

    ``affected`` are the ids of the objects on whose epochs a confirmation depends. ``fingerprint`` identifies the other
    facts on which the confirmation depends. ``session`` is a parameter, with its value, to set in this session.
    ``unallowed`` are the words that the statement's ALLOW lacks for the predicted effects. A confirmation in advance
    does not cover these effects. For a block, ``unallowed_sources`` are the names of the sources for which the ALLOW
    clauses in the block lack at least one of the words in ``unallowed``. ``assertion`` is a fact that the user also
    asserts by confirming. A confirmation in advance does not cover this fact either. ``effect`` is an action outside
    the catalog that is carried out after the commit. ``notes`` are the first lines of EXPLAIN, which describe how the
    statement is carried out. ``graph`` is the graph for a statement that shows a lineage.
    """

    statement: Statement
    steps: tuple[Step, ...] = ()
    operation: Operation | None = None
    changes: tuple[ResultRow, ...] = ()
    table: Table | None = None
    preview: Preview | None = None
    is_unsafe: bool = False
    affected: tuple[int, ...] = ()
    unallowed: tuple[str, ...] = ()
    unallowed_sources: tuple[str, ...] = ()
    assertion: str = ""
    fingerprint: str = ""
    effect: Effect | None = None
    session: tuple[str, str | None] | None = None
    notes: tuple[str, ...] = ()
    graph: Graph | None = None
