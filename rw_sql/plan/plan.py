"""What a statement will do, as data: the operation to commit, what it shows beforehand, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from rw_sql.metastore.records import Operation
from rw_sql.plan.steps import Step
from rw_sql.syntax.statements import Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """One row of a statement's answer. ``change`` is a word like CREATED, ALTERED, NOTHING, NOTICE."""

    object: str
    change: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPreview:
    """One split before and after: next offsets, the upstream's bounds, and the verdict; None where unknown."""

    split: str
    old: int | None
    new: int | None
    start: int | None
    end: int | None
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an operator sees before the question: who depends on the source, what becomes of each split and property.

    Where several objects are moved at once each has its ``parts``, and the rest is empty.
    """

    title: str
    dependents: tuple[str, ...] = ()
    properties: tuple[tuple[str, str, str], ...] = ()
    splits: tuple[SplitPreview, ...] = ()
    notices: tuple[str, ...] = ()
    parts: tuple[Preview, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows to show. ``columns`` are (name, Spark DDL type); every row has one value per column."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of one statement. Without an ``operation`` nothing is committed.

    ``affected`` are the ids whose epochs a confirmation is bound to. ``session`` is a parameter to set in this session.
    """

    statement: Statement
    steps: tuple[Step, ...] = ()
    operation: Operation | None = None
    changes: tuple[ObjectChange, ...] = ()
    table: Table | None = None
    preview: Preview | None = None
    is_unsafe: bool = False
    affected: tuple[int, ...] = ()
    session: tuple[str, str | None] | None = None
