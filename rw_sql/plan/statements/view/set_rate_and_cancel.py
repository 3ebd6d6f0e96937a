"""Lowers ALTER MATERIALIZED VIEW … SET, and CANCEL JOBS, which cancels backfills and refreshes in progress."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import CANNOT_REFRESH, INVALID_OPTION, UNDEFINED_OBJECT, SqlError
from rw_sql.metastore.records import DropObject, MaterializedViewRecord, Operation, PutObject, TableRecord
from rw_sql.metastore.refresh_records import REFRESHING, RefreshRecord
from rw_sql.model.definitions import view_definition
from rw_sql.model.object_lookup import find_view
from rw_sql.model.parameters import streaming_parallelism
from rw_sql.model.refresh_states import given_up, progress_of, refresh_of
from rw_sql.model.source_readers import forget_fragments
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import steps_of
from rw_sql.plan.statements.common import drop_with_dependents, nothing
from rw_sql.plan.statements.view.alter_query import lower_new_definition
from rw_sql.plan.statements.view.backfill_plan import RATE_LIMIT, VIEW_PARALLELISM, view_options
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.rendering.merge import merge_options
from rw_sql.syntax.statements import Option

if TYPE_CHECKING:
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import BackfillProgress
    from rw_sql.metastore.records import Change
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import AlterSet, CancelJobs, CreateMaterializedView


def lower_alter_materialized_view_set(statement: AlterSet, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers ALTER MATERIALIZED VIEW v SET, which changes one option in the view's WITH list."""
    view = find_view(snapshot, statement.name)
    current = view_definition(view.definition)
    if statement.parameter == VIEW_PARALLELISM:
        return _set_parallelism(statement, snapshot, inspector, view, current)
    return _set_rate_limit(statement, snapshot, view, current)


def _set_parallelism(
    statement: AlterSet,
    snapshot: Snapshot,
    inspector: Inspector,
    view: MaterializedViewRecord,
    current: CreateMaterializedView,
) -> Plan:
    """Lowers SET PARALLELISM. The statement rebuilds the view, because the number of partitions of the view's state
    cannot change while the state exists."""
    if statement.is_deferred:
        raise SqlError(
            INVALID_OPTION,
            "changing the parallelism of a view needs a rebuild, which cannot be deferred",
            span=statement.parameter_span,
            hint="omit DEFERRED: queries read the old rows until the new ones have caught up",
        )
    given = tuple(Option(key=VIEW_PARALLELISM, value=value, span=value.span) for value in statement.values)
    merged = merge_options(current, given[:1], () if given else (VIEW_PARALLELISM,))
    wanted = view_options(merged).parallelism or streaming_parallelism(snapshot)
    is_rebuilt = any(rebuild.view_id == view.id for rebuild in snapshot.all("rebuild"))
    if wanted == view.parallelism and not is_rebuilt:
        return nothing(statement, view.name, f"its {VIEW_PARALLELISM} is already {wanted}")
    return lower_new_definition(
        statement, snapshot, inspector, view, replace(merged, name=statement.name), view.dialect
    )


def _set_rate_limit(
    statement: AlterSet, snapshot: Snapshot, view: MaterializedViewRecord, current: CreateMaterializedView
) -> Plan:
    """Lowers SET backfill_rate_limit. The new limit takes effect at the next chunk of the backfill. The value DEFAULT
    removes the limit."""
    given = tuple(Option(key=RATE_LIMIT, value=value, span=value.span) for value in statement.values[:1])
    merged = merge_options(current, given, () if given else (RATE_LIMIT,))
    limit = view_options(merged).rate_limit
    if limit == view.backfill_rate_limit:
        return nothing(statement, view.name, f"{RATE_LIMIT} already has this value")
    changes = [PutObject(record=replace(view, definition=render(merged), backfill_rate_limit=limit))]
    for rebuild in snapshot.all("rebuild"):
        if rebuild.view_id == view.id and rebuild.view is not None:
            later = merge_options(view_definition(rebuild.view.definition), given, () if given else (RATE_LIMIT,))
            made = replace(rebuild.view, definition=render(later), backfill_rate_limit=limit)
            changes.append(PutObject(record=replace(rebuild, view=made)))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind="ALTER MATERIALIZED VIEW SET",
            statement=render(statement),
            objects=(view.name,),
            changes=tuple(changes),
        ),
        changes=(
            ResultRow(
                object=view.name,
                change="ALTERED",
                detail=f"{RATE_LIMIT}: {_said(view.backfill_rate_limit)} -> {_said(limit)}",
            ),
        ),
        affected=(view.id,),
    )


def _said(limit: int | None) -> str:
    return "no limit" if limit is None else str(limit)


def lower_cancel_jobs(statement: CancelJobs, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers CANCEL JOBS, which drops views whose backfill is not complete, and cancels refreshes that are still
    loading rows.

    The ids in the statement are those of the catalog view ``rw_ddl_progress``.
    """
    unfinished = inspector.jobs.backfills()
    made = {progress.object_id: progress for progress in unfinished.values()}
    changes: list[Change] = []
    gone: list[MaterializedViewRecord] = []
    for id_ in dict.fromkeys(statement.ids):
        view = snapshot.get(id_)
        refresh = refresh_of(snapshot, id_)
        if id_ in made and refresh is not None and isinstance(view, TableRecord):
            changes.append(_cancelled(refresh, statement.span))
            gone.append(view)
            continue
        if id_ not in made or not isinstance(view, MaterializedViewRecord):
            raise SqlError(
                UNDEFINED_OBJECT,
                f"there is no backfill or refresh with id {id_}",
                span=statement.span,
                hint="SELECT ddl_id, ddl_statement FROM rw_catalog.rw_ddl_progress lists the current ones",
            )
        changes += drop_with_dependents(
            snapshot, view.id, "materialized_view", view.name, statement.span, is_cascade=False
        )
        gone.append(view)
    changes += forget_fragments(snapshot, (change.id for change in changes if isinstance(change, DropObject)))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind="CANCEL JOBS",
            statement=render(statement),
            objects=tuple(view.name for view in gone),
            changes=tuple(changes),
        ),
        changes=tuple(
            ResultRow(object=view.name, change="CANCELLED", detail=_told(view, made[view.id])) for view in gone
        ),
        affected=tuple(view.id for view in gone),
    )


def _cancelled(refresh: RefreshRecord, span: Span) -> PutObject:
    """The change that cancels a refresh. Raises SqlError if the refresh has begun to change the table, because the
    table's rows after a partial merge would match no state of the upstream."""
    if refresh.status != REFRESHING:
        raise SqlError(
            CANNOT_REFRESH,
            f"the refresh of table '{refresh.name}' is in state {refresh.status}: a merge cannot be cancelled",
            span=span,
            hint=f"WAIT TABLE {sql_name(refresh.name)} waits until the refresh is done",
        )
    return given_up(refresh, "CANCEL JOBS")


def _told(view: MaterializedViewRecord, progress: BackfillProgress) -> str:
    return progress_of(progress) if isinstance(view, TableRecord) else progress_text(progress)


def progress_text(progress: BackfillProgress) -> str:
    """The progress of a view in RisingWave's format: ``reading history: 45.00% (450/1000)``."""
    share = 100 * progress.done / progress.total if progress.total else 100.0
    return f"{progress.phase}: {share:.2f}% ({progress.done}/{progress.total})"
