"""Checks a script without running it. Each statement is planned on the catalog that the earlier statements would
produce.

A statement with an error also changes this catalog, as far as the statement's effect is known. At least the name of the
created object is recorded. Therefore, the errors of later statements do not report the object as missing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sqlglot.errors import SqlglotError

from rw_sql.errors import (
    BLOCK_LEFT_OPEN,
    SINK_CANNOT_FOLLOW,
    UNDEFINED_OBJECT,
    UNKNOWN_SPLIT,
    UNTERMINATED,
    Span,
    SqlError,
    near_names,
)
from rw_sql.metastore import Snapshot
from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.model.object_lookup import find_table, find_view, is_schema
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.plan.checks.literal_secrets import hide_unknown, refuse_passwords
from rw_sql.plan.lower import lower, lower_explained
from rw_sql.plan.offline.assumed_catalog import AssumedCatalog, Outcome
from rw_sql.plan.offline.fallback_hints import hint_for
from rw_sql.plan.offline.inspector import FUNCTION, QUERY, TABLE, OfflineInspector, Unanswerable
from rw_sql.plan.offline.judgement import follows_from_blocked, follows_from_columns, is_of_the_world
from rw_sql.plan.offline.pieces import parse_piece, pieces_of, rest_of
from rw_sql.plan.offline.placeholders import created_in
from rw_sql.plan.offline.queries import QueryReading, read_query
from rw_sql.plan.offline.query_answers import QueryColumns
from rw_sql.plan.offline.references import named_ids, topics_hint, with_named_splits
from rw_sql.plan.offline.repair import is_of_a_part, repaired
from rw_sql.plan.offline.report import SPARK, Checked, first_words, kind_of
from rw_sql.plan.offline.spark_statements import refused_changes, refused_in_block, wrong_columns
from rw_sql.plan.offline.unsafe import unsafe_note
from rw_sql.plan.statements.common import VALID_SPLITS
from rw_sql.plan.statements.move.block import SHOWN_INSIDE, require_inside
from rw_sql.plan.statements.session.search_path import DEFAULT_PATH, is_relation, resolved
from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.identifiers import PUBLIC
from rw_sql.syntax.lexing.nesting import too_deep
from rw_sql.syntax.parsing.syntax_errors import END_WITH_SEMICOLON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.ports.queries import AnalyzedQuery, QueryAnalysis
    from rw_sql.plan.result.plan import Plan
    from rw_sql.syntax import ScriptStatement
    from rw_sql.syntax.statements import Name, Statement

_MOST_ERRORS = 20
_WITH_QUERY = ast.CreateMaterializedView | ast.AlterMaterializedViewQuery | ast.CreateSink
_TOKEN = "the token, which is valid only in the session that refused the statement"
_SPARKS_OWN = "Spark's own statements"


class ScriptChecker:
    """Checks files in order. Each file is checked on the catalog that the earlier files would produce.

    ``ask_spark`` is a function that passes a query to Spark's analyzer. If ``ask_spark`` is None, queries are checked
    without Spark. ``spark_tables`` are the names of Spark tables that queries may read.
    """

    def __init__(
        self,
        snapshot: Snapshot | None = None,
        *,
        ask_spark: Callable[[AnalyzedQuery], QueryAnalysis | None] | None = None,
        spark_tables: Iterable[str] = (),
    ) -> None:
        self._assumed = AssumedCatalog(snapshot if snapshot is not None else Snapshot(), spark_tables)
        self._has_catalog = snapshot is not None
        self._ask_spark = ask_spark
        self._block: ScriptStatement | None = None
        self._before_block = self.snapshot
        self._made: dict[str, list[tuple[str, int, int]]] = {}

    @property
    def snapshot(self) -> Snapshot:
        """The catalog that the statements checked so far would produce."""
        return self._assumed.snapshot

    @snapshot.setter
    def snapshot(self, snapshot: Snapshot) -> None:
        self._assumed.snapshot = snapshot

    def has_object(self, name: Name) -> bool:
        """True if a relation with this name exists. See :class:`rw_sql.syntax.CatalogView`."""
        return is_relation(self.snapshot, name, self._assumed.search_path)

    def has_schema(self, name: str | None = None) -> bool:
        """True if a schema with this name exists. Without a name, True if any schema other than ``public`` exists."""
        return is_schema(self.snapshot, name) if name is not None else bool(self.snapshot.all("schema"))

    def has_database(self, name: str) -> bool:
        """True if a statement of the script creates a Spark database with this name. If the check has no catalog, also
        True for every name that is not similar to the name of a schema, because a Spark database may have this name."""
        if name in self._assumed.databases:
            return True
        schemas = (PUBLIC, *(record.name for record in self.snapshot.all("schema")))
        return not self._has_catalog and not near_names(name, schemas)

    def has_parameter(self, name: str) -> bool:
        """True if a session parameter has this name, or if the name is clearly a misspelling of a parameter's name."""
        return name in SESSION_PARAMETERS or ("_" in name and bool(near_names(name, SESSION_PARAMETERS, most=1)))

    def announce(self, text: str, file: str) -> None:
        """Records the names of the objects that a file creates. If a file that is checked earlier refers to one of
        these objects, its error can then name the file that creates the object."""
        line, counted = 1, 0
        for _, name, start in created_in(text):
            line, counted = line + text.count("\n", counted, start), start
            self._made.setdefault(name, []).append((file, start, line))

    def check(self, text: str, file: str) -> Iterator[Checked]:
        """Checks the statements of a file in order. Yields each statement with its errors."""
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
        """Checks one piece of a file. Yields the statement in the piece, and all further statements that the piece
        turns out to contain."""
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
                    error.hint = error.hint if error.kind is UNTERMINATED else END_WITH_SEMICOLON
                except SqlError as again:
                    errors = [again]
        if statement is None:
            outcome = Outcome(errors=errors)
            if has_parsed:
                self._check_spark(piece.text, outcome)
                if not outcome.errors:
                    self._assumed.see_spark(piece.text)
            else:
                self._assumed.know_by_name(piece.text)
            kind = SPARK if has_parsed else first_words(piece.text)
            return self._report(piece, text, file, kind, outcome, None), rest
        before = self.snapshot
        try:
            outcome = self._run(statement, piece)
        except RecursionError:
            outcome = Outcome(errors=[too_deep(statement.span)])
            self._assumed.know_by_name(piece.text)
        outcome.errors[:0] = errors
        checked = self._report(piece, text, file, kind_of(statement), outcome, statement, before)
        return checked, rest

    def _report(
        self,
        piece: ScriptStatement,
        text: str,
        file: str,
        kind: str,
        outcome: Outcome,
        statement: Statement | None,
        before: Snapshot | None = None,
    ) -> Checked:
        for error in outcome.errors:
            error.hint = error.hint or hint_for(error, statement)
            if statement is not None:
                hide_unknown(error, statement)
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
        """Adds a hint to an error about an unknown name that a later statement creates, and returns the error. The hint
        names the place of that statement."""
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

    def _run(self, statement: Statement, piece: ScriptStatement) -> Outcome:
        match statement:
            case ast.BeginUnsafe():
                if self._block is None:
                    self._block, self._before_block = piece, self.snapshot
                return Outcome()
            case ast.Commit():
                self._block = None
                return Outcome()
            case ast.Rollback():
                if self._block is not None:
                    self._block, self.snapshot = None, self._before_block
                return Outcome()
            case ast.Confirm():
                return Outcome(unchecked=[_TOKEN])
            case ast.Explain(statement=inner):
                return self._plan(inner, is_explained=True)
            case _:
                pass
        if self._block is not None and not isinstance(statement, (ast.SetParameter, *SHOWN_INSIDE)):
            try:
                require_inside(statement)
            except SqlError as error:
                return Outcome(errors=[error])
        outcome = self._plan(statement)
        self._assumed.follow(statement, outcome)
        return outcome

    def _plan(self, statement: Statement, *, is_explained: bool = False) -> Outcome:
        """Lowers a statement.

        If an error concerns only one part of the statement, lowers the statement again without that part. Repeats this
        until no such error is left.
        """
        outcome = Outcome()
        try:
            statement = resolved(
                statement, self.snapshot, self._assumed.search_path, self._assumed.parameter("query_dialect")
            )
        except SqlError as error:
            outcome.errors.append(error)
            return outcome
        reading = self._read(statement)
        named = named_ids(self.snapshot, statement, reading.tables)
        blocking = named & self._assumed.unsure
        are_named = not named & self._assumed.no_columns
        is_partial = not are_named or self._assumed.has_untyped(named)
        base = with_named_splits(self.snapshot, statement)
        columns = QueryColumns()
        readers = self._readers(statement)
        if isinstance(statement, _WITH_QUERY):
            outcome.errors += reading.errors
            given = statement.columns if isinstance(statement, ast.CreateMaterializedView) else ()
            columns = QueryColumns(columns=reading.columns, given=given)
            if reading.is_of_spark:
                outcome.unchecked.append(TABLE)
            if reading.calls_own:
                outcome.unchecked.append(FUNCTION)
        # The Spark that analyzes queries does not have the user's functions.
        ask_spark = None if reading.calls_own else self._ask_spark
        current, removed = statement, list[str]()
        for _ in range(_MOST_ERRORS):
            inspector = OfflineInspector(base, columns=columns, readers=readers, ask_spark=ask_spark)
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
                if error.kind is SINK_CANNOT_FOLLOW and named & self._assumed.no_keys:
                    break
                if self._assumed.is_undropped(current, error):
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
            if outcome.plan is None:
                outcome.errors += _passwords(current)
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
            query_dialect=self._assumed.parameter("query_dialect"),
            shares_sources=self._assumed.parameter("streaming_use_shared_source") == "true",
            search_path=self._assumed.search_path,
        )
        if isinstance(statement, ast.Wait) and statement.name is not None:
            (find_table if statement.kind == "TABLE" else find_view)(snapshot, statement.name)
        return lower_one(statement, snapshot, inspector)

    def _read(self, statement: Statement) -> QueryReading:
        if not isinstance(statement, _WITH_QUERY):
            return QueryReading()
        if statement.query is None:
            relation = statement.relation if isinstance(statement, ast.CreateSink) else None
            return QueryReading(tables=(relation.key,) if relation is not None else ())
        return read_query(
            statement.query,
            self.snapshot,
            dialect=self._assumed.parameter("query_dialect"),
            unknown=self._assumed.no_columns,
            of_spark=self._assumed.of_spark,
            functions=self._assumed.functions,
            names_columns=not getattr(statement, "columns", ()),
            has_strict_quotes=True,
        )

    def _readers(self, statement: Statement) -> tuple[MaterializedViewRecord, ...]:
        """If the statement changes the query of a view, returns the views that read this view.

        The statement's plan includes the queries of these views.
        """
        if not isinstance(statement, ast.CreateMaterializedView | ast.AlterMaterializedViewQuery):
            return ()
        altered = self.snapshot.find("materialized_view", statement.name.key)
        found = self.snapshot.dependents_of(altered.id) if altered is not None else ()
        return tuple(reader for reader in found if isinstance(reader, MaterializedViewRecord))

    def _check_spark(self, text: str, outcome: Outcome) -> None:
        """Checks that a Spark statement does not change rw_sql's objects, and that the columns that it reads from them
        exist."""
        path, snapshot = self._assumed.search_path, self.snapshot
        refused = list(refused_in_block(text))
        outcome.errors += refused
        outcome.errors += refused_changes(text, snapshot, search_path=path, of_spark=self._assumed.of_spark)
        for error in refused:
            if error.span is not None:
                self._assumed.know_by_name(text[error.span.start :])
        if outcome.errors:
            return
        is_complete = False
        if path == DEFAULT_PATH and self._assumed.parameter("query_dialect") == "spark":
            found, is_complete = wrong_columns(
                text,
                snapshot,
                unknown=self._assumed.no_columns,
                of_spark=self._assumed.of_spark,
                functions=self._assumed.functions,
            )
            outcome.errors += found
        if not is_complete:
            outcome.unchecked.append(_SPARKS_OWN)


def _blank(piece: ScriptStatement, file: str, kind: str) -> Checked:
    end = piece.start + len(piece.text)
    return Checked(file=file, line=piece.line, column=piece.column, start=piece.start, end=end, kind=kind)


def _passwords(statement: Statement) -> list[SqlError]:
    """Returns the error for a property that contains a password. This check is for statements that cannot be planned
    offline."""
    try:
        refuse_passwords(statement)
    except SqlError as error:
        return [error]
    return []


def _at_start(error: SqlError) -> SqlError:
    error.span = Span(start=0, end=1, line=1, column=1)
    return error
