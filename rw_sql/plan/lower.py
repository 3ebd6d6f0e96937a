"""Computes the plan of a statement on a snapshot, by calling the lowering function of the statement's kind."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.model.object_lookup import OtherKindError, find_source
from rw_sql.model.pauses import pauses_of
from rw_sql.plan.checks.literal_secrets import hide_unknown, refuse_passwords
from rw_sql.plan.effects.later_changes import NO_LATER_CHANGES, LaterChanges
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.statements.move.block import lower_inside
from rw_sql.plan.statements.other_kind import with_the_right_statement
from rw_sql.plan.statements.session.resource_group import require_no_rewind
from rw_sql.plan.statements.session.search_path import DEFAULT_PATH, resolved
from rw_sql.plan.statements.table.source_of_table import with_tables
from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.lexing.nesting import too_deep
from rw_sql.syntax.parsing.unsupported import unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.metastore import Snapshot
    from rw_sql.plan.ports.inspector import Inspector


_OF_SESSION = (ast.ShowParameter, ast.ShowCreate, ast.ShowObjects)
"""The statements whose result depends on the search path itself. All other statements need the search path only to
resolve names."""


def _told(statement: ast.Statement, what: str) -> Plan:
    """Returns the plan that EXPLAIN shows for a statement without a lowering. The executor runs such a statement
    directly. ``what`` describes the statement."""
    return Plan(statement=statement, changes=(ResultRow(object="", change="NOTHING", detail=what),))


def lower(
    statement: ast.Statement,
    snapshot: Snapshot,
    inspector: Inspector,
    *,
    query_dialect: str = "spark",
    shares_sources: bool = True,
    search_path: tuple[str, ...] = DEFAULT_PATH,
    later: LaterChanges = NO_LATER_CHANGES,
) -> Plan:
    """Returns the plan of one statement. The inspector provides the facts outside the catalog on which the plan
    depends. Raises SqlError if the statement cannot be planned.

    ``query_dialect`` is the dialect of views' queries: 'spark' or 'risingwave'. ``shares_sources`` is True if new
    sources are shared by default. ``search_path`` are the schemas in which unqualified names are looked up. ``later``
    are the changes that the later statements of a block make.
    """
    with _hiding_unknown(statement):
        statement = resolved(statement, snapshot, search_path, query_dialect)
        refused = unsupported(statement)
        if refused is not None:
            raise refused
        shown = search_path if isinstance(statement, _OF_SESSION) else DEFAULT_PATH
        try:
            plan = _lower(
                statement,
                snapshot,
                inspector,
                query_dialect=query_dialect,
                shares_sources=shares_sources,
                search_path=shown,
                later=later,
            )
        except OtherKindError as error:
            raise with_the_right_statement(error, statement, snapshot)  # noqa: B904 - the same error, its hint completed
        except RecursionError as error:
            query = getattr(statement, "query", None)
            raise too_deep(query.span if query is not None else statement.span) from error
        refuse_passwords(statement)
        plan = with_tables(snapshot, plan)
        require_no_rewind(plan, snapshot, inspector)
        return plan


@contextmanager
def _hiding_unknown(statement: ast.Statement) -> Iterator[None]:
    """Returns a context manager. If the ``with`` block raises an error about the statement, the error hides the values
    of the statement's unknown properties."""
    try:
        yield
    except SqlError as error:
        hide_unknown(error, statement)
        raise


def lower_explained(
    statement: ast.Statement,
    snapshot: Snapshot,
    inspector: Inspector,
    *,
    query_dialect: str = "spark",
    shares_sources: bool = True,
    search_path: tuple[str, ...] = DEFAULT_PATH,
) -> Plan:
    """Returns the plan of a statement that EXPLAIN shows but does not run. Does the same as :func:`lower`, except that
    INJECT and SKIP treat a running source as paused.

    The preview therefore shows the effect of INJECT and SKIP even if the source is not paused, and a notice in it
    states that the source is running.
    """
    if isinstance(statement, _OF_SESSION):
        return lower(statement, snapshot, inspector, search_path=search_path)
    statement = resolved(statement, snapshot, search_path, query_dialect)
    lower_one = partial(lower, query_dialect=query_dialect, shares_sources=shares_sources)
    if not isinstance(statement, ast.InjectSourceOffsets | ast.SkipRecord):
        return lower_one(statement, snapshot, inspector)
    source = find_source(snapshot, statement.name)
    if pauses_of(snapshot, source.id):
        return lower_one(statement, snapshot, inspector)
    plan = lower_inside((ast.PauseSource(name=statement.name),), statement, snapshot, inspector, lower_one)
    note = f"the source is running, so its positions will change: PAUSE SOURCE {sql_name(source.name)} first"
    if plan.preview is None:
        return plan
    preview = replace(plan.preview, epoch=snapshot.epoch, notices=(*plan.preview.notices, note))
    return replace(plan, preview=preview)


def _lower(
    statement: ast.Statement,
    snapshot: Snapshot,
    inspector: Inspector,
    *,
    query_dialect: str,
    shares_sources: bool,
    search_path: tuple[str, ...],
    later: LaterChanges,
) -> Plan:
    """Lowers the statement. The module with a statement's lowering is imported when the first statement of this kind is
    lowered. Importing all of these modules at once would take about 50 ms, and few processes plan every kind of
    statement."""
    lower_one = partial(lower, query_dialect=query_dialect, shares_sources=shares_sources)
    match statement:
        case (
            ast.CreateSource()
            | ast.CreateTable()
            | ast.CreateSink()
            | ast.CreateMaterializedView()
            | ast.CreateConnection()
        ) if statement.or_replace:
            from rw_sql.plan.statements.replace.replace import lower_create_or_replace

            return lower_create_or_replace(statement, snapshot, inspector, lower_one, query_dialect)
        case ast.CreateSource():
            from rw_sql.plan.statements.source.source import lower_create_source

            return lower_create_source(statement, snapshot, inspector, is_shared=shares_sources)
        case ast.DropSource():
            from rw_sql.plan.statements.source.source import lower_drop_source

            return lower_drop_source(statement, snapshot)
        case ast.PauseSource():
            from rw_sql.plan.statements.source.source import lower_pause_source

            return lower_pause_source(statement, snapshot)
        case ast.PauseAllSources():
            from rw_sql.plan.statements.source.source import lower_pause_all_sources

            return lower_pause_all_sources(statement, snapshot)
        case ast.ResumeSource():
            from rw_sql.plan.statements.source.source import lower_resume_source

            return lower_resume_source(statement, snapshot, inspector)
        case ast.ResumeAllSources():
            from rw_sql.plan.statements.source.source import lower_resume_all_sources

            return lower_resume_all_sources(statement, snapshot, inspector)
        case ast.AlterSourceUnsafeSet() | ast.AlterTableUnsafeSet():
            from rw_sql.plan.statements.move.unsafe_set_and_reset import lower_alter_source_unsafe_set

            return lower_alter_source_unsafe_set(statement, snapshot, inspector, later)
        case ast.ResetSourceSplits():
            from rw_sql.plan.statements.move.unsafe_set_and_reset import lower_reset_source_splits

            return lower_reset_source_splits(statement, snapshot, inspector, later)
        case ast.InjectSourceOffsets():
            from rw_sql.plan.statements.move.inject import lower_inject_source_offsets

            return lower_inject_source_offsets(statement, snapshot, inspector)
        case ast.SkipRecord():
            from rw_sql.plan.statements.move.skip import lower_skip_record

            return lower_skip_record(statement, snapshot, inspector)
        case ast.UnsafeBlock():
            from rw_sql.plan.statements.move.block import lower_unsafe_block

            return lower_unsafe_block(statement, snapshot, inspector, partial(lower, query_dialect=query_dialect))
        case ast.UndoOperation():
            from rw_sql.plan.statements.move.undo import lower_undo_operation

            return lower_undo_operation(statement, snapshot, inspector)
        case ast.RewindSource():
            from rw_sql.plan.statements.move.rewind import lower_rewind_source

            return lower_rewind_source(statement, snapshot, inspector)
        case ast.CreateTable() if statement.cdc_table is not None:
            from rw_sql.plan.statements.table.cdc_table import lower_create_cdc_table

            return lower_create_cdc_table(statement, snapshot, inspector, query_dialect)
        case ast.CreateTable():
            from rw_sql.plan.statements.table.table import lower_create_table

            return lower_create_table(statement, snapshot, inspector, query_dialect)
        case ast.AlterRefreshSchema(kind="TABLE"):
            from rw_sql.plan.statements.table.columns import lower_refresh_table_schema

            return lower_refresh_table_schema(statement, snapshot, inspector)
        case ast.AlterRefreshSchema():
            from rw_sql.plan.statements.source.refresh_schema import lower_refresh_source_schema

            return lower_refresh_source_schema(statement, snapshot, inspector)
        case ast.AlterAddColumn():
            from rw_sql.plan.statements.table.columns import lower_add_column

            return lower_add_column(statement, snapshot, inspector)
        case ast.AlterTableDropColumn():
            from rw_sql.plan.statements.table.columns import lower_drop_column

            return lower_drop_column(statement, snapshot, inspector)
        case ast.AlterTableRenameColumn():
            from rw_sql.plan.statements.table.columns import lower_rename_column

            return lower_rename_column(statement, snapshot, inspector)
        case ast.AlterTableDropConnector():
            from rw_sql.plan.statements.table.table import lower_drop_connector

            return lower_drop_connector(statement, snapshot, inspector)
        case ast.DropTable():
            from rw_sql.plan.statements.table.table import lower_drop_table

            return lower_drop_table(statement, snapshot)
        case ast.CreateMaterializedView():
            from rw_sql.plan.statements.view.view import lower_create_materialized_view

            return lower_create_materialized_view(statement, snapshot, inspector, query_dialect)
        case ast.AlterMaterializedViewQuery():
            from rw_sql.plan.statements.view.alter_query import lower_alter_materialized_view_query

            return lower_alter_materialized_view_query(statement, snapshot, inspector, query_dialect)
        case ast.DropMaterializedView():
            from rw_sql.plan.statements.view.view import lower_drop_materialized_view

            return lower_drop_materialized_view(statement, snapshot)
        case ast.RebuildMaterializedView():
            from rw_sql.plan.statements.view.rebuild import lower_rebuild_materialized_view

            return lower_rebuild_materialized_view(statement, snapshot, inspector)
        case ast.RefreshTable():
            from rw_sql.plan.statements.table.refresh import lower_refresh_table

            return lower_refresh_table(statement, snapshot, inspector)
        case ast.AlterRename():
            from rw_sql.plan.statements.table.rename import lower_alter_rename

            return lower_alter_rename(statement, snapshot, inspector)
        case ast.AlterSetSchema():
            from rw_sql.plan.statements.table.set_schema import lower_alter_set_schema

            return lower_alter_set_schema(statement, snapshot, inspector)
        case ast.AlterSwap():
            from rw_sql.plan.statements.table.swap_with import lower_alter_swap

            return lower_alter_swap(statement, snapshot)
        case ast.CreateSink():
            from rw_sql.plan.statements.sink.sink import lower_create_sink

            return lower_create_sink(statement, snapshot, inspector, query_dialect)
        case ast.DropSink():
            from rw_sql.plan.statements.sink.sink import lower_drop_sink

            return lower_drop_sink(statement, snapshot)
        case ast.PauseSink():
            from rw_sql.plan.statements.sink.sink import lower_pause_sink

            return lower_pause_sink(statement, snapshot)
        case ast.ResumeSink():
            from rw_sql.plan.statements.sink.sink import lower_resume_sink

            return lower_resume_sink(statement, snapshot)
        case ast.CreateConnection():
            from rw_sql.plan.statements.connection.connection import lower_create_connection

            return lower_create_connection(statement, snapshot, inspector)
        case ast.AlterConnectionOptions():
            from rw_sql.plan.statements.connection.connection import lower_alter_connection_options

            return lower_alter_connection_options(statement, snapshot, inspector, later)
        case ast.AlterSetConnection():
            from rw_sql.plan.statements.connection.set_connection import lower_alter_set_connection

            return lower_alter_set_connection(statement, snapshot, inspector, later)
        case ast.AlterSet(parameter="resource_group") | ast.AlterReset():
            from rw_sql.plan.statements.session.resource_group import lower_alter_resource_group

            return lower_alter_resource_group(statement, snapshot)
        case ast.AlterSet(kind="MATERIALIZED VIEW"):
            from rw_sql.plan.statements.view.set_rate_and_cancel import lower_alter_materialized_view_set

            return lower_alter_materialized_view_set(statement, snapshot, inspector)
        case ast.AlterSet(kind="TABLE", parameter="backfill_rate_limit"):
            from rw_sql.plan.statements.table.cdc_table import lower_alter_table_rate_limit

            return lower_alter_table_rate_limit(statement, snapshot)
        case ast.AlterSet():
            from rw_sql.plan.statements.source.set_rate import lower_alter_source_set

            return lower_alter_source_set(statement, snapshot)
        case ast.CancelJobs():
            from rw_sql.plan.statements.view.set_rate_and_cancel import lower_cancel_jobs

            return lower_cancel_jobs(statement, snapshot, inspector)
        case ast.AlterConnector():
            from rw_sql.plan.statements.connection.connector_with import lower_alter_connector

            return lower_alter_connector(statement, snapshot, inspector, later)
        case ast.DropConnection():
            from rw_sql.plan.statements.connection.connection import lower_drop_connection

            return lower_drop_connection(statement, snapshot)
        case ast.Validate():
            from rw_sql.plan.statements.connection.connection import lower_validate

            return lower_validate(statement, snapshot, inspector)
        case ast.CreateSecret():
            from rw_sql.plan.statements.connection.secret import lower_create_secret

            return lower_create_secret(statement, snapshot, inspector)
        case ast.AlterSecret():
            from rw_sql.plan.statements.connection.secret import lower_alter_secret

            return lower_alter_secret(statement, snapshot, inspector)
        case ast.DropSecret():
            from rw_sql.plan.statements.connection.secret import lower_drop_secret

            return lower_drop_secret(statement, snapshot)
        case ast.AlterSystemSet():
            from rw_sql.plan.statements.session.parameters import lower_alter_system_set

            return lower_alter_system_set(statement, snapshot)
        case ast.SetParameter(parameter="search_path", is_local=False):
            from rw_sql.plan.statements.schema.schema import lower_set_search_path

            return lower_set_search_path(statement, snapshot)
        case ast.SetParameter():
            from rw_sql.plan.statements.session.parameters import lower_set_parameter

            return lower_set_parameter(statement, snapshot)
        case ast.CreateSchema():
            from rw_sql.plan.statements.schema.schema import lower_create_schema

            return lower_create_schema(statement, snapshot, inspector)
        case ast.DropSchema():
            from rw_sql.plan.statements.schema.schema import lower_drop_schema

            return lower_drop_schema(statement, snapshot)
        case ast.UseSchema():
            from rw_sql.plan.statements.schema.schema import lower_use_schema

            return lower_use_schema(statement, snapshot)
        case ast.ShowParameter(parameter="search_path"):
            from rw_sql.plan.statements.schema.schema import lower_show_search_path

            return lower_show_search_path(statement, search_path)
        case ast.InjectCheckpointOffsets():
            from rw_sql.plan.statements.checkpoint.checkpoint import lower_inject_checkpoint_offsets

            return lower_inject_checkpoint_offsets(statement, snapshot, inspector)
        case ast.ShowCheckpoint():
            from rw_sql.plan.statements.checkpoint.checkpoint import lower_show_checkpoint

            return lower_show_checkpoint(statement, snapshot, inspector)
        case ast.ShowObjects(kind="CLUSTER"):
            from rw_sql.plan.statements.session.resource_group import lower_show_cluster

            return lower_show_cluster(statement, snapshot, inspector)
        case ast.ShowObjects():
            from rw_sql.plan.statements.show.objects import lower_show_objects

            return lower_show_objects(statement, snapshot, inspector)
        case ast.ShowSourceSplits():
            from rw_sql.plan.statements.show.splits import lower_show_source_splits

            return lower_show_source_splits(statement, snapshot, inspector)
        case ast.ShowSourceContinuity():
            from rw_sql.plan.statements.show.continuity import lower_show_source_continuity

            return lower_show_source_continuity(statement, snapshot, inspector)
        case ast.ShowMetrics():
            from rw_sql.plan.statements.show.jobs import lower_show_metrics

            return lower_show_metrics(statement, snapshot, inspector)
        case ast.ShowLineage():
            from rw_sql.plan.statements.show.lineage import lower_show_lineage

            return lower_show_lineage(statement, snapshot, inspector)
        case ast.ShowUnsafeOperations():
            from rw_sql.plan.statements.show.unsafe_operations import lower_show_unsafe_operations

            return lower_show_unsafe_operations(statement, snapshot, inspector)
        case ast.ShowCreate():
            from rw_sql.plan.statements.show.objects import lower_show_create

            return lower_show_create(statement, snapshot, search_path)
        case ast.Describe():
            from rw_sql.plan.statements.show.objects import lower_describe

            return lower_describe(statement, snapshot)
        case ast.Flush():
            return _told(statement, "waits until every record that exists now has reached every running view")
        case ast.Wait():
            return _told(statement, "waits until all backfills, rebuilds and refreshes are complete")
        case ast.BeginUnsafe():
            return _told(
                statement,
                "begins a block: the following statements are collected, and COMMIT runs them as one operation",
            )
        case ast.Commit() | ast.Rollback():
            return _told(statement, "would end a BEGIN UNSAFE block, but no block is in progress")
        case ast.Confirm():
            return _told(statement, "runs the refused statement that returned this token, if nothing has changed since")
        case _:
            raise SqlError(
                NOT_SUPPORTED,
                "this statement is valid but not supported yet",
                span=statement.span,
                hint="SHOW SOURCES, SHOW JOBS and EXPLAIN show what exists",
            )
