"""What a statement will do, as data: the operation to commit, what it shows beforehand, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from rw_sql.metastore.records import Operation
from rw_sql.plan.result.external_actions import Effect
from rw_sql.plan.result.steps import Step
from rw_sql.syntax.statements import Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """One row of a statement's answer. ``change`` is a word like CREATED, ALTERED, NOTHING, NOTICE."""

    object: str
    change: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPreview:
    """One split before and after: next offsets, the upstream's bounds, and the verdict; None where unknown.

    ``duplicates`` and ``gaps`` are what the verdict counts: records, or where not ``is_exact``, as many at most.
    ``reader`` is the view that reads it itself, where rows of several are in one table.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an operator sees before the question: who depends on the source, what becomes of each split and property.

    Where several objects are moved at once each has its ``parts``, and the rest is empty. ``epoch`` is that of the
    catalog it was made at. ``is_checkpoint``: it is of a job made elsewhere, and ``dependents`` are those of its
    operators that keep state.
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
    """Rows to show. ``columns`` are (name, Spark DDL type); every row has one value per column."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of one statement. Without an ``operation`` nothing is committed.

    ``affected`` are the ids whose epochs a confirmation is bound to. ``session`` is a parameter to set in this session.
    ``unallowed`` are the words of ALLOW that the statement lacks for what is predicted: a yes that was given before
    anybody saw the preview does not cover that. ``claim`` is what a yes says besides, which cannot be said beforehand
    either. ``fingerprint`` is what else a confirmation is bound to. ``effect`` is what is done outside of the catalog,
    once the operation is committed. ``notes`` are what EXPLAIN says first of how it will be done.
    """

    statement: Statement
    steps: tuple[Step, ...] = ()
    operation: Operation | None = None
    changes: tuple[ObjectChange, ...] = ()
    table: Table | None = None
    preview: Preview | None = None
    is_unsafe: bool = False
    affected: tuple[int, ...] = ()
    unallowed: tuple[str, ...] = ()
    claim: str = ""
    fingerprint: str = ""
    effect: Effect | None = None
    session: tuple[str, str | None] | None = None
    notes: tuple[str, ...] = ()
