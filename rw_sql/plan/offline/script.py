"""Checks a script without running it: each statement is planned on the catalog that results from the statements
before it.

A statement with an error changes the catalog as far as possible. At least its object is known by name, so that later
statements do not report it as missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from sqlglot.errors import SqlglotError

from rw_sql.errors import (
    BLOCK_LEFT_OPEN,
    DUPLICATE_OBJECT,
    SINK_CANNOT_FOLLOW,
    UNDEFINED_OBJECT,
    UNKNOWN_SPLIT,
    Span,
    SqlError,
    near_names,
)
from rw_sql.metastore import Snapshot
from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.model.names import RELATION_KINDS, find_table, find_view, is_schema
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.model.relations import relation_of, schema_columns
from rw_sql.plan.lower import lower, lower_explained
from rw_sql.plan.offline.hints import hint_for
from rw_sql.plan.offline.inspector import QUERY, TABLE, OfflineInspector, Unanswerable
from rw_sql.plan.offline.judgement import follows_from_blocked, follows_from_columns, is_of_the_world
from rw_sql.plan.offline.pieces import parse_piece, pieces_of, rest_of
from rw_sql.plan.offline.placeholders import created_in, made_by_spark, with_placeholder
from rw_sql.plan.offline.queries import QueryReading, read_query
from rw_sql.plan.offline.query_answers import UNKNOWN_TYPE, QueryColumns
from rw_sql.plan.offline.references import named_ids, topics_hint, with_named_splits
from rw_sql.plan.offline.repair import is_of_a_part, repaired
from rw_sql.plan.offline.report import SPARK, Checked, first_words, kind_of
from rw_sql.plan.offline.spark_statements import refused_changes, wrong_columns
from rw_sql.plan.offline.unsafe import unsafe_note
from rw_sql.plan.queries.maintenance import visible_keys
from rw_sql.plan.result.steps import after
from rw_sql.plan.statements.common import VALID_SPLITS
from rw_sql.plan.statements.move.block import SHOWN_INSIDE, require_inside
from rw_sql.plan.statements.session.search_path import DEFAULT_PATH, SEARCH_PATH, is_relation, path_of, resolved
from rw_sql.syntax import statements as ast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rw_sql.metastore.records import Change
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.ports.queries import AnalyzedQuery, QueryAnalysis
    from rw_sql.plan.result.plan import Plan
    from rw_sql.syntax import ScriptStatement
    from rw_sql.syntax.statements import Name, Statement

_MOST_ERRORS = 20
_WITH_QUERY = ast.CreateMaterializedView | ast.AlterMaterializedViewQuery | ast.CreateSink
_TOKEN = "the token, which is valid only in the session that refused the statement"
_SPARKS_OWN = "Spark's own statements"


_USE_DEFAULT = re.compile(
    r"\s*USE\s+(?:(?:DATABASE|SCHEMA|NAMESPACE)\s+)?(?:spark_catalog\s*\.\s*)?(`?)default\1\s*;?\s*\Z", re.IGNORECASE
)

_ALTERED = re.compile(
    r"""\s*ALTER\s+(?:TABLE|SOURCE)\s+(?:IF\s+EXISTS\s+)?([\w$]+\s*\.\s*)?(?:"((?:[^"]|"")+)"|([^\W\d][\w$]*))""",
    re.IGNORECASE,
)
"""Matches the object in an ALTER statement that may change columns."""


@dataclass(slots=True)
class _Outcome:
    """The result of checking one statement, and its effect on the catalog. ``changes`` is None if the statement cannot
    be planned."""

    errors: list[SqlError] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    blocked_by: tuple[str, ...] = ()
    changes: tuple[Change, ...] | None = None
    plan: Plan | None = None
    hides_columns: bool = False


class ScriptChecker:
    """Checks files in order, each on the catalog that results from the files before it.

    ``later`` maps names to the positions of the statements that create them, for the hint of a statement that comes
    too early.
    """

    def __init__(
        self,
        snapshot: Snapshot | None = None,
        *,
        ask_spark: Callable[[AnalyzedQuery], QueryAnalysis | None] | None = None,
        spark_tables: Iterable[str] = (),
    ) -> None:
        self.snapshot = snapshot if snapshot is not None else Snapshot()
        self._ask_spark = ask_spark
        self._of_spark = {name.lower() for name in spark_tables}
        self._parameters: dict[str, str] = {}
        self._unsure: set[int] = set()
        """Objects whose own statements have errors."""
        self._no_columns: set[int] = set()
        """Objects with unknown columns."""
        self._no_keys: set[int] = set()
        """Views whose key columns are uncertain."""
        self._undropped: set[str] = set()
        self._block: ScriptStatement | None = None
        self._before_block = self.snapshot
        self._made: dict[str, list[tuple[str, int, int]]] = {}

    def has_object(self, name: Name) -> bool:
        """True if a relation with this name exists. See :class:`rw_sql.syntax.CatalogView`."""
        return is_relation(self.snapshot, name, self._search_path)

    def has_schema(self, name: str | None = None) -> bool:
        """True if a schema with this name exists; without a name, if any schema other than ``public`` exists."""
        return is_schema(self.snapshot, name) if name is not None else bool(self.snapshot.all("schema"))

    def has_database(self, name: str) -> bool:
        """True if a statement of the script creates a Spark database with this name."""
        return name in self._of_spark

    def has_parameter(self, name: str) -> bool:
        """True if a session parameter with this name exists, or if the name is clearly a misspelt parameter."""
        return name in SESSION_PARAMETERS or ("_" in name and bool(near_names(name, SESSION_PARAMETERS, most=1)))

    def announce(self, text: str, file: str) -> None:
        """Records the names that a file creates, so that an error in an earlier file can point there."""
        line, counted = 1, 0
        for _, name, start in created_in(text):
            line, counted = line + text.count("\n", counted, start), start
            self._made.setdefault(name, []).append((file, start, line))

    def check(self, text: str, file: str) -> Iterator[Checked]:
        """Yields every statement of a file, in order, with its errors."""
        for piece in pieces_of(text):
            yield from self.check_piece(piece, text, file)
        if self._block is not None:
            error = SqlError(
                BLOCK_LEFT_OPEN,
                "the file ends inside a BEGIN UNSAFE block, so no statement of the block would take effect",
                hint="end the script with COMMIT;",
            )
            began, self._block = self._block, None
            self.snapshot = self._before_block
            yield replace(_blank(began, file, "BEGIN UNSAFE"), errors=(began.locate(_at_start(error), text, file),))

    def check_piece(self, piece: ScriptStatement, text: str, file: str) -> Iterator[Checked]:
        """Yields one statement of a file, and any further statements that its text turns out to contain."""
        waiting = [piece]
        while waiting:
            checked, rest = self._check_piece(waiting.pop(0), text, file)
            yield checked
            waiting[:0] = rest

    def _check_piece(self, piece: ScriptStatement, text: str, file: str) -> tuple[Checked, tuple[ScriptStatement, ...]]:
        rest: tuple[ScriptStatement, ...] = ()
        statement: Statement | None = None
        errors: list[SqlError] = []
        has_parsed = True
        try:
            statement = parse_piece(piece.text, self)
        except SqlError as error:
            errors = [error]
            piece, rest = rest_of(piece, error)
            has_parsed = False
            if rest:
                try:
                    statement = parse_piece(piece.text, self)
                    has_parsed = True
                    error.hint = "end the statement before it with ;"
                except SqlError as again:
                    errors = [again]
        if statement is None:
            outcome = _Outcome(errors=errors)
            if has_parsed:
                self._check_spark(piece.text, outcome)
                if not outcome.errors:
                    self._see_spark(piece.text)
            else:
                self._know_by_name(piece.text)
            kind = SPARK if has_parsed else first_words(piece.text)
            return self._report(piece, text, file, kind, outcome, None), rest
        before = self.snapshot
        outcome = self._run(statement, piece)
        outcome.errors[:0] = errors
        checked = self._report(piece, text, file, kind_of(statement), outcome, statement, before)
        return checked, rest

    def _report(
        self,
        piece: ScriptStatement,
        text: str,
        file: str,
        kind: str,
        outcome: _Outcome,
        statement: Statement | None,
        before: Snapshot | None = None,
    ) -> Checked:
        for error in outcome.errors:
            error.hint = error.hint or hint_for(error, statement)
        errors = tuple(piece.locate(self._hinted(error, piece, file), text, file) for error in outcome.errors)
        errors = tuple(sorted(errors, key=lambda error: error.span.start if error.span is not None else piece.start))
        note = None
        if statement is not None and before is not None and not errors:
            note = unsafe_note(statement, before, outcome.plan)
        return replace(
            _blank(piece, file, kind),
            errors=errors,
            unchecked=tuple(dict.fromkeys(outcome.unchecked)),
            blocked_by=outcome.blocked_by,
            unsafe=note,
        )

    def _hinted(self, error: SqlError, piece: ScriptStatement, file: str) -> SqlError:
        """The error with a hint, if a later statement creates the unknown name."""
        if error.span is None:
            error.span = _at_start(error).span
        if error.kind is UNDEFINED_OBJECT and error.span is not None:
            written = piece.text[error.span.start : error.span.end].strip("`\"'")
            for made_in, start, line in self._made.get(written, self._made.get(written.lower(), [])):
                if made_in != file or start > piece.start:
                    where = f"line {line}" if made_in == file else f"{made_in}, line {line}"
                    error.hint = f"it is created later, in {where}: move that statement before this one"
                    break
        return error

    def _run(self, statement: Statement, piece: ScriptStatement) -> _Outcome:
        match statement:
            case ast.BeginUnsafe():
                if self._block is None:
                    self._block, self._before_block = piece, self.snapshot
                return _Outcome()
            case ast.Commit():
                self._block = None
                return _Outcome()
            case ast.Rollback():
                if self._block is not None:
                    self._block, self.snapshot = None, self._before_block
                return _Outcome()
            case ast.Confirm():
                return _Outcome(unchecked=[_TOKEN])
            case ast.Explain(statement=inner):
                return self._plan(inner, is_explained=True)
            case _:
                pass
        if self._block is not None and not isinstance(statement, (ast.SetParameter, *SHOWN_INSIDE)):
            try:
                require_inside(statement)
            except SqlError as error:
                return _Outcome(errors=[error])
        outcome = self._plan(statement)
        self._follow(statement, outcome)
        return outcome

    def _plan(self, statement: Statement, *, is_explained: bool = False) -> _Outcome:
        """Lowers a statement.

        While an error is confined to a part of the statement, lowers it again without that part.
        """
        outcome = _Outcome()
        try:
            statement = resolved(statement, self.snapshot, self._search_path, self._parameter("query_dialect"))
        except SqlError as error:
            outcome.errors.append(error)
            return outcome
        reading = self._read(statement)
        named = named_ids(self.snapshot, statement, reading.tables)
        blocking = named & self._unsure
        are_named = not named & self._no_columns
        is_partial = not are_named or self._has_untyped(named)
        base = with_named_splits(self.snapshot, statement)
        columns = QueryColumns()
        readers = self._readers(statement)
        if isinstance(statement, _WITH_QUERY):
            outcome.errors += reading.errors
            given = statement.columns if isinstance(statement, ast.CreateMaterializedView) else ()
            columns = QueryColumns(columns=reading.columns, given=given)
            if reading.is_of_spark:
                outcome.unchecked.append(TABLE)
        current, removed = statement, list[str]()
        for _ in range(_MOST_ERRORS):
            inspector = OfflineInspector(base, columns=columns, readers=readers, ask_spark=self._ask_spark)
            try:
                outcome.plan = self._lower(current, base, inspector, is_explained=is_explained)
            except Unanswerable as unanswerable:
                inspector.note(unanswerable.what)
            except SqlglotError:
                inspector.note(QUERY)  # Spark can parse queries that sqlglot cannot
            except SqlError as error:
                outcome.unchecked += inspector.unchecked
                if is_of_the_world(current, error, inspector):
                    break
                if blocking and follows_from_blocked(current, error):
                    break
                if is_partial and follows_from_columns(error, are_named=are_named):
                    break
                if error.kind is SINK_CANNOT_FOLLOW and named & self._no_keys:
                    break
                if self._is_undropped(current, error):
                    break
                if outcome.errors and (not is_of_a_part(current, error) or any(k in error.message for k in removed)):
                    break
                is_listed = error.kind is UNKNOWN_SPLIT and (error.hint or "").startswith(VALID_SPLITS)
                if is_listed and base is not self.snapshot:
                    error.hint = topics_hint(base, current) or error.hint
                outcome.errors.append(error)
                repair = repaired(current, error)
                if repair is None:
                    break
                current = repair.statement
                removed += [repair.removed] if repair.removed is not None else []
                outcome.hides_columns |= repair.hides_columns
                continue
            outcome.unchecked += inspector.unchecked
            break
        if outcome.plan is not None and outcome.plan.operation is not None:
            outcome.changes = outcome.plan.operation.changes
        if blocking:
            names = (record.name for id_ in sorted(blocking) if (record := self.snapshot.get(id_)) is not None)
            outcome.blocked_by = tuple(dict.fromkeys(names))
        if reading.columns is None and isinstance(statement, _WITH_QUERY) and statement.query is not None:
            outcome.hides_columns = True
        return outcome

    def _lower(self, statement: Statement, snapshot: Snapshot, inspector: Inspector, *, is_explained: bool) -> Plan:
        lower_one = partial(
            lower_explained if is_explained else lower,
            query_dialect=self._parameter("query_dialect"),
            shares_sources=self._parameter("streaming_use_shared_source") == "true",
            search_path=self._search_path,
        )
        if isinstance(statement, ast.Wait) and statement.name is not None:
            (find_table if statement.kind == "TABLE" else find_view)(snapshot, statement.name)
        return lower_one(statement, snapshot, inspector)

    @property
    def _search_path(self) -> tuple[str, ...]:
        return path_of(self._parameter(SEARCH_PATH))

    def _parameter(self, name: str) -> str:
        return self._parameters.get(name, SESSION_PARAMETERS[name].default)

    def _read(self, statement: Statement) -> QueryReading:
        if not isinstance(statement, _WITH_QUERY):
            return QueryReading()
        if statement.query is None:
            relation = statement.relation if isinstance(statement, ast.CreateSink) else None
            return QueryReading(tables=(relation.key,) if relation is not None else ())
        return read_query(
            statement.query,
            self.snapshot,
            dialect=self._parameter("query_dialect"),
            unknown=self._no_columns,
            of_spark=self._of_spark,
            names_columns=not getattr(statement, "columns", ()),
        )

    def _readers(self, statement: Statement) -> tuple[MaterializedViewRecord, ...]:
        """The views that read a view whose query the statement changes.

        Their queries are planned together with the statement.
        """
        if not isinstance(statement, ast.CreateMaterializedView | ast.AlterMaterializedViewQuery):
            return ()
        altered = self.snapshot.find("materialized_view", statement.name.key)
        found = self.snapshot.dependents_of(altered.id) if altered is not None else ()
        return tuple(reader for reader in found if isinstance(reader, MaterializedViewRecord))

    def _has_untyped(self, ids: Iterable[int]) -> bool:
        """True if an object has columns of which only the names are known."""
        views = (record for record in map(self.snapshot.get, ids) if isinstance(record, MaterializedViewRecord))
        return any(kind == UNKNOWN_TYPE for view in views for _, kind in schema_columns(view.schema))

    def _column_names(self, id_: int) -> frozenset[str]:
        record = self.snapshot.get(id_)
        return frozenset(name for name, _ in relation_of(record).columns) if record is not None else frozenset()

    def _is_undropped(self, statement: Statement, error: SqlError) -> bool:
        """True if a name is only in use because an earlier DROP statement has an error."""
        name = getattr(statement, "name", None)
        return error.kind is DUPLICATE_OBJECT and name is not None and name.key in self._undropped

    def _follow(self, statement: Statement, outcome: _Outcome) -> None:
        """Applies the known effect of a statement to the catalog."""
        plan = outcome.plan
        if plan is not None and plan.session is not None:
            name, value = plan.session
            self._parameters[name] = value if value is not None else SESSION_PARAMETERS[name].default
        before = self.snapshot
        is_create = kind_of(statement).startswith("CREATE ")
        if outcome.changes and (is_create or not outcome.errors):
            self.snapshot = after(self.snapshot, outcome.changes)
        if is_create:
            self._follow_create(statement, outcome, before)
        elif outcome.errors or plan is None:
            self._follow_failed(statement)

    def _follow_create(self, statement: Statement, outcome: _Outcome, before: Snapshot) -> None:
        new = set(self.snapshot.records) - set(before.records)
        if not new and (outcome.plan is None or outcome.errors):
            kind = kind_of(statement).removeprefix("CREATE ").replace(" ", "_").lower()
            name = getattr(statement, "name", None)
            if name is not None:
                self.snapshot, ids = with_placeholder(self.snapshot, kind, name.key)
                self._unsure |= set(ids)
                self._no_columns |= set(ids)
            return
        if outcome.errors:
            self._unsure |= new
        if outcome.hides_columns:
            self._no_columns |= new
        views = (record for record in map(self.snapshot.get, new) if isinstance(record, MaterializedViewRecord))
        self._no_keys |= {view.id for view in views if visible_keys(view) != view.keys}

    def _follow_failed(self, statement: Statement) -> None:
        """Handles an ALTER statement with an error: marks the parts that it would change as unknown."""
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
            self._no_columns |= {id_ for id_ in touched if new_column not in self._column_names(id_)}
        if isinstance(statement, ast.AlterRename):
            new = getattr(statement, "new_name", None)
            kinds = [k for k in RELATION_KINDS if self.snapshot.find(k, name.key) is not None]
            if new is not None:
                self.snapshot, ids = with_placeholder(
                    self.snapshot, kinds[0] if kinds else "materialized_view", getattr(new, "last", str(new))
                )
                self._unsure |= set(ids)
                self._no_columns |= set(ids)

    def _check_spark(self, text: str, outcome: _Outcome) -> None:
        """Checks a statement of Spark as far as it concerns rw_sql's objects."""
        path, snapshot = self._search_path, self.snapshot
        outcome.errors += refused_changes(text, snapshot, search_path=path, of_spark=self._of_spark)
        if outcome.errors:
            return
        is_complete = False
        if path == DEFAULT_PATH and self._parameter("query_dialect") == "spark":
            found, is_complete = wrong_columns(text, snapshot, unknown=self._no_columns, of_spark=self._of_spark)
            outcome.errors += found
        if not is_complete:
            outcome.unchecked.append(_SPARKS_OWN)

    def _see_spark(self, text: str) -> None:
        made = made_by_spark(text)
        if made is not None:
            self._of_spark |= {made, made.rpartition(".")[2]}
        elif _USE_DEFAULT.match(text):
            # The views of public are in Spark's default database, so USE default resets the search path, as
            # in a session.
            self._parameters.pop(SEARCH_PATH, None)

    def _know_by_name(self, text: str) -> None:
        """Handles statements that do not parse: records the name of a CREATE's object, and marks the columns of an
        ALTER's object as unknown."""
        altered = _ALTERED.match(text)
        if altered is not None:
            last = (altered[2] or altered[3].lower()).replace('""', '"')
            schema = (altered[1] or "").strip(" .\n\t").lower()
            name = ast.Name(parts=(schema, last) if schema else (last,)).key
            found = (self.snapshot.find(kind, name) for kind in RELATION_KINDS)
            self._no_columns |= {record.id for record in found if record is not None}
            return
        for kind, name, start in created_in(text):
            if not text[:start].strip():
                self.snapshot, ids = with_placeholder(self.snapshot, kind, name)
                self._unsure |= set(ids)
                self._no_columns |= set(ids)
            return


def _blank(piece: ScriptStatement, file: str, kind: str) -> Checked:
    end = piece.start + len(piece.text)
    return Checked(file=file, line=piece.line, column=piece.column, start=piece.start, end=end, kind=kind)


def _at_start(error: SqlError) -> SqlError:
    error.span = Span(start=0, end=1, line=1, column=1)
    return error
