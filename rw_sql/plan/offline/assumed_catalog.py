"""Represents the catalog that the statements of a script would produce, and records which parts of this catalog are
uncertain."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.errors import DUPLICATE_OBJECT, SqlError
from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.model.object_lookup import RELATION_KINDS
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.model.relations import relation_of, schema_columns
from rw_sql.plan.offline.placeholders import DATABASE, FUNCTION, created_in, made_by_spark, with_placeholder
from rw_sql.plan.offline.query_answers import UNKNOWN_TYPE
from rw_sql.plan.offline.report import kind_of
from rw_sql.plan.queries.maintenance import visible_keys
from rw_sql.plan.result.steps import after
from rw_sql.plan.statements.session.search_path import SEARCH_PATH, path_of
from rw_sql.syntax import statements as ast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.plan.result.plan import Plan
    from rw_sql.syntax.statements import Statement

_USE_DEFAULT = re.compile(
    r"\s*USE\s+(?:(?:DATABASE|SCHEMA|NAMESPACE)\s+)?(?:spark_catalog\s*\.\s*)?(`?)default\1\s*;?\s*\Z", re.IGNORECASE
)

_ALTERED = re.compile(
    r"""\s*ALTER\s+(?:TABLE|SOURCE)\s+(?:IF\s+EXISTS\s+)?([\w$]+\s*\.\s*)?(?:"((?:[^"]|"")+)"|([^\W\d][\w$]*))""",
    re.IGNORECASE,
)
"""Matches the beginning of an ALTER TABLE or ALTER SOURCE statement, up to the name of the object. Such a statement may
change the object's columns."""


@dataclass(slots=True)
class Outcome:
    """The result of checking one statement, and the statement's effect on the catalog. ``changes`` is None if the
    statement cannot be planned."""

    errors: list[SqlError] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    blocked_by: tuple[str, ...] = ()
    changes: tuple[Change, ...] | None = None
    plan: Plan | None = None
    hides_columns: bool = False


class AssumedCatalog:
    """The catalog that results from the statements checked so far. For a statement that could not be planned, the
    catalog contains only an approximation of the statement's effect.

    ``of_spark`` are the names of the Spark tables that the script creates or that the caller declares.
    """

    def __init__(self, snapshot: Snapshot, of_spark: Iterable[str]) -> None:
        self.snapshot = snapshot
        self.of_spark = {name.lower() for name in of_spark}
        self.parameters: dict[str, str] = {}
        self.unsure: set[int] = set()
        """The ids of objects whose CREATE or ALTER statements have errors."""
        self.no_columns: set[int] = set()
        """The ids of objects with unknown columns."""
        self.no_keys: set[int] = set()
        """The ids of views whose key columns are uncertain."""
        self.functions: set[str] = set()
        """The names of the functions that the script creates in Spark, without their schemas."""
        self.databases: set[str] = set()
        """The names of the databases that the script creates in Spark."""
        self._undropped: set[str] = set()

    @property
    def search_path(self) -> tuple[str, ...]:
        """The schemas in which unqualified names are looked up."""
        return path_of(self.parameter(SEARCH_PATH))

    def parameter(self, name: str) -> str:
        """The value of a parameter of the session."""
        return self.parameters.get(name, SESSION_PARAMETERS[name].default)

    def has_untyped(self, ids: Iterable[int]) -> bool:
        """True if one of the objects is a view that has a column of unknown type."""
        views = (record for record in map(self.snapshot.get, ids) if isinstance(record, MaterializedViewRecord))
        return any(kind == UNKNOWN_TYPE for view in views for _, kind in schema_columns(view.schema))

    def _column_names(self, id_: int) -> frozenset[str]:
        record = self.snapshot.get(id_)
        return frozenset(name for name, _ in relation_of(record).columns) if record is not None else frozenset()

    def is_undropped(self, statement: Statement, error: SqlError) -> bool:
        """True if ``error`` states that a name is in use, and the name would be free if an earlier DROP statement did
        not have an error."""
        name = getattr(statement, "name", None)
        return error.kind is DUPLICATE_OBJECT and name is not None and name.key in self._undropped

    def follow(self, statement: Statement, outcome: Outcome) -> None:
        """Applies to the catalog the part of a statement's effect that is known."""
        plan = outcome.plan
        if plan is not None and plan.session is not None:
            name, value = plan.session
            self.parameters[name] = value if value is not None else SESSION_PARAMETERS[name].default
        before = self.snapshot
        is_create = kind_of(statement).startswith("CREATE ")
        if outcome.changes and (is_create or not outcome.errors):
            self.snapshot = after(self.snapshot, outcome.changes)
        if is_create:
            self._follow_create(statement, outcome, before)
        elif outcome.errors or plan is None:
            self._follow_failed(statement)

    def _follow_create(self, statement: Statement, outcome: Outcome, before: Snapshot) -> None:
        new = set(self.snapshot.records) - set(before.records)
        if not new and (outcome.plan is None or outcome.errors):
            kind = kind_of(statement).removeprefix("CREATE ").replace(" ", "_").lower()
            name = getattr(statement, "name", None)
            if name is not None:
                self.snapshot, ids = with_placeholder(self.snapshot, kind, name.key)
                self.unsure |= set(ids)
                self.no_columns |= set(ids)
            return
        if outcome.errors:
            self.unsure |= new
        if outcome.hides_columns:
            self.no_columns |= new
        views = (record for record in map(self.snapshot.get, new) if isinstance(record, MaterializedViewRecord))
        self.no_keys |= {view.id for view in views if visible_keys(view) != view.keys}

    def _follow_failed(self, statement: Statement) -> None:
        """Handles an ALTER statement with an error. Marks the parts that the statement would change as unknown."""
        name = getattr(statement, "name", None)
        kind = kind_of(statement)
        if name is None:
            return
        if kind.startswith("DROP "):
            self._undropped.add(name.key)
            return
        touched = {record.id for k in RELATION_KINDS if (record := self.snapshot.find(k, name.key)) is not None}
        new_column = statement.column.name if isinstance(statement, ast.AlterAddColumn) else None
        if isinstance(statement, ast.AlterTableRenameColumn):
            new_column = statement.new_column
        if new_column is not None:
            self.no_columns |= {id_ for id_ in touched if new_column not in self._column_names(id_)}
        if isinstance(statement, ast.AlterRename):
            new = getattr(statement, "new_name", None)
            kinds = [k for k in RELATION_KINDS if self.snapshot.find(k, name.key) is not None]
            if new is not None:
                self.snapshot, ids = with_placeholder(
                    self.snapshot, kinds[0] if kinds else "materialized_view", getattr(new, "last", str(new))
                )
                self.unsure |= set(ids)
                self.no_columns |= set(ids)

    def see_spark(self, text: str) -> None:
        """Records the part of a Spark statement's effect that is known."""
        for kind, made in made_by_spark(text):
            last = made.rpartition(".")[2]
            if kind == FUNCTION:
                self.functions.add(last)
            elif kind == DATABASE:
                self.databases.add(last)
            else:
                self.of_spark |= {made, last}
        if _USE_DEFAULT.match(text):
            # The Spark views of the objects in ``public`` are in Spark's database ``default``, so USE default resets
            # the search path, as it does in a session.
            self.parameters.pop(SEARCH_PATH, None)

    def know_by_name(self, text: str) -> None:
        """Handles a statement that does not parse. For a CREATE, records the name of the object. For an ALTER, marks
        the columns of the object as unknown."""
        altered = _ALTERED.match(text)
        if altered is not None:
            last = (altered[2] or altered[3].lower()).replace('""', '"')
            schema = (altered[1] or "").strip(" .\n\t").lower()
            name = ast.Name(parts=(schema, last) if schema else (last,)).key
            found = (self.snapshot.find(kind, name) for kind in RELATION_KINDS)
            self.no_columns |= {record.id for record in found if record is not None}
            return
        for kind, name, start in created_in(text):
            if not text[:start].strip():
                self.snapshot, ids = with_placeholder(self.snapshot, kind, name)
                self.unsure |= set(ids)
                self.no_columns |= set(ids)
            return
