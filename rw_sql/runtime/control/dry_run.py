"""Explains the statements of a script in their order, without running them.

Each statement is planned on the catalog that results from the statements before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.model.object_lookup import is_schema, object_name
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.plan.lower import lower
from rw_sql.plan.result.confirmation import question_of, require_switch, token_of
from rw_sql.plan.result.explain import explain_lines
from rw_sql.plan.result.steps import after
from rw_sql.plan.statements.move.block import SHOWN_INSIDE, lower_inside, require_inside
from rw_sql.plan.statements.session.search_path import SEARCH_PATH, is_relation, path_of, resolved
from rw_sql.plan.statements.view.backfill_plan import RATE_LIMIT, with_rate_limit
from rw_sql.plan.statements.view.rebuild import rebuild_groups, swap_operation
from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.runtime.support.store_errors import store_errors
from rw_sql.syntax import statements as ast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.result.confirmation import Question
    from rw_sql.plan.result.plan import Plan
    from rw_sql.runtime.jobs.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """The predicted effect of one statement, as the lines of EXPLAIN.

    ``question`` is the request to confirm the statement; None if the statement needs no confirmation.
    """

    lines: tuple[str, ...]
    question: Question | None = None

    @property
    def needs_confirmation(self) -> bool:
        """True if the statement is unsafe and must be confirmed."""
        return self.question is not None


class DryRun:
    """A session that predicts the effects of statements, and commits nothing.

    This object also answers the questions about the catalog that decide whether a statement of the script belongs to
    rw_sql or to Spark.

    The prediction makes three assumptions. Sources that the script creates have read nothing. The readers of sources
    that the script pauses have stopped. Rebuilds for which the script waits succeed.
    """

    def __init__(self, context: Context, parameters: Mapping[str, str]) -> None:
        self._context = context
        self._real = context.metastore.snapshot()
        self._then = self._real
        self._parameters = dict(parameters)
        self._block: list[ast.Statement] | None = None
        self._reason: str | None = None
        self._real_inspector = WarehouseInspector(context, self._real)

    @property
    def catalog(self) -> Snapshot:
        """The catalog that results from the statements so far."""
        return self._then

    @property
    def has_open_block(self) -> bool:
        """True if BEGIN UNSAFE has begun a block, and neither COMMIT nor ROLLBACK has ended it yet."""
        return self._block is not None

    def has_object(self, name: ast.Name) -> bool:
        """True if an object with this name exists after the statements so far."""
        return is_relation(self._then, name, self._search_path)

    def has_schema(self, name: str | None = None) -> bool:
        """True if the schema ``name`` exists after the statements so far. If ``name`` is None, the result is True if a
        schema other than ``public`` exists."""
        return is_schema(self._then, name) if name is not None else bool(self._then.all("schema"))

    def has_database(self, name: str) -> bool:
        """True if Spark has a database with this name that is not an rw_sql schema."""
        return self._real_inspector.tables.is_users_database(name)

    def has_parameter(self, name: str) -> bool:
        """True if a session parameter with this name exists."""
        return name in SESSION_PARAMETERS

    def explain(self, statement: ast.Statement) -> Foreseen:
        """The predicted effect of a statement.

        Later statements are planned on the catalog that results from this statement. Raises the SqlError that the
        statement itself would raise, unless this error only demands a confirmation.
        """
        with store_errors(self._context.sessions.require_alive):
            return self._explain(statement)

    def _explain(self, statement: ast.Statement) -> Foreseen:
        match statement:
            case ast.Explain(statement=inner):
                return self._foreseen(self._plan(inner))
            case ast.BeginUnsafe(reason=reason) if self._block is None:
                require_switch(self._then, statement.span)
                self._block, self._reason = [], reason
                return Foreseen(lines=("begins a block: COMMIT runs its statements as one operation",))
            case ast.Rollback() if self._block is not None:
                self._block = None
                return Foreseen(lines=("ends the block without running its statements",))
            case ast.Commit() if self._block is not None:
                statements, self._block = tuple(self._block), None
                return self._done(ast.UnsafeBlock(statements=statements, reason=self._reason, span=statement.span))
            case _ if self._block is not None:
                return self._collected(statement, self._block)
            case _:
                return self._done(statement)

    def _done(self, statement: ast.Statement) -> Foreseen:
        plan = self._plan(statement)
        if plan.session is not None:
            name, value = plan.session
            if value is None:
                self._parameters.pop(name, None)
            else:
                self._parameters[name] = value
        foreseen = self._foreseen(plan)
        if plan.operation is not None:
            if plan.is_unsafe:
                require_switch(self._then, statement.span)
            self._then = after(self._then, plan.operation.changes)
        if isinstance(statement, ast.Wait):
            self._then = _waited(self._then, statement)
        return foreseen

    def _collected(self, statement: ast.Statement, block: list[ast.Statement]) -> Foreseen:
        """Explains a statement inside a block. Its plan takes the block's earlier statements into account. A statement
        that COMMIT would run is added to the block."""
        is_shown = isinstance(statement, SHOWN_INSIDE)
        if isinstance(statement, ast.SetParameter):
            return self._done(statement)
        if not is_shown:
            require_inside(statement)
        statement = resolved(statement, self._then, self._search_path, self._dialect)
        lower_one = partial(lower, query_dialect=self._dialect)
        plan = lower_inside(tuple(block), statement, self._then, self._inspector, lower_one)
        if not is_shown:
            block.append(statement)
        return self._foreseen(plan, is_collected=not is_shown)

    def _foreseen(self, plan: Plan, *, is_collected: bool = False) -> Foreseen:
        question = None
        if plan.is_unsafe and plan.operation is not None and not is_collected:
            question = question_of(self._then, plan)
            question = replace(question, is_final=question.token == token_of(self._real, plan))
        return Foreseen(lines=tuple(explain_lines(plan)), question=question)

    def _plan(self, statement: ast.Statement) -> Plan:
        if isinstance(statement, ast.CreateMaterializedView | ast.CreateTable):
            statement = with_rate_limit(statement, self._parameter(RATE_LIMIT))
        shares = self._parameter("streaming_use_shared_source") == "true"
        return lower(
            statement,
            self._then,
            self._inspector,
            query_dialect=self._dialect,
            shares_sources=shares,
            search_path=self._search_path,
        )

    @property
    def _inspector(self) -> Inspector:
        real = self._real_inspector
        return real if self._then is self._real else real.after(self._then)

    def _parameter(self, name: str) -> str:
        return self._parameters.get(name, SESSION_PARAMETERS[name].default)

    @property
    def _search_path(self) -> tuple[str, ...]:
        return path_of(self._parameter(SEARCH_PATH))

    @property
    def _dialect(self) -> str:
        return self._parameter("query_dialect")


def _waited(snapshot: Snapshot, statement: ast.Wait) -> Snapshot:
    """The catalog after the rebuilds for which a WAIT waits. If the WAIT names a view, these are the rebuild of the
    view and the rebuilds that are swapped together with it; otherwise, these are all rebuilds."""
    view = snapshot.find("materialized_view", object_name(statement.name)) if statement.name is not None else None
    for group in rebuild_groups(snapshot):
        if statement.name is None or (view is not None and any(made.view_id == view.id for made in group)):
            snapshot = after(snapshot, swap_operation(snapshot, group, "").changes)
    return snapshot
