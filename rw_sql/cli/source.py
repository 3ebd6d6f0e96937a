"""``rw-sql source``: commands for the statements about one source; ``--show-sql`` prints the statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rw_sql.cli.source_statements import (
    ROWS,
    TargetWords,
    allowed_words,
    alter_statement,
    inject_statement,
    source_name,
    split_ids,
)

if TYPE_CHECKING:
    from rw_sql.syntax.statements import Statement

source_app = typer.Typer(no_args_is_help=True, help="Show and move sources; every command is one statement.")

_Source = Annotated[str, typer.Option("--source", "-s", metavar="NAME", help="The source's name.")]
_Warehouse = Annotated[
    str | None,
    typer.Option(
        "--warehouse", "-w", metavar="PATH", envvar="RW_SQL_WAREHOUSE", help="The warehouse; ./rw_warehouse by default."
    ),
]
_Output = Annotated[str, typer.Option("--output", "-o", metavar="FORM", help="table or json.")]
_ShowSql = Annotated[bool, typer.Option("--show-sql", help="Print the statement and do nothing.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the preview and change nothing.")]
_Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Stored with the operation.")]
_Yes = Annotated[bool, typer.Option("--yes", help="Confirm without asking; predicted loss must be listed in --allow.")]
_Confirm = Annotated[
    list[str] | None,
    typer.Option(
        "--confirm", metavar="TOKEN", help="The token that was printed when this request was refused: confirms it."
    ),
]
_AllowRows = Annotated[
    list[str] | None, typer.Option("--allow", metavar="WORD", help="gaps or duplicates; may be repeated.")
]
_Splits = Annotated[list[str] | None, typer.Option("--split", metavar="SPLIT", help="Only this split; repeatable.")]
_SkipValidate = Annotated[bool, typer.Option("--skip-validate", help="Skip the check against the upstream.")]


def _run(
    statement: Statement,
    *,
    warehouse: str | None,
    output: str,
    show_sql: bool,
    dry_run: bool = False,
    is_confirmed: bool = False,
    tokens: list[str] | None = None,
) -> None:
    from rw_sql.cli.source_run import run_statement

    run_statement(
        statement,
        warehouse=warehouse,
        output=output,
        is_shown=show_sql,
        is_explained=dry_run,
        is_confirmed=is_confirmed,
        tokens=frozenset(tokens or ()),
    )


@source_app.command("list")
def list_sources(
    like: Annotated[
        str | None, typer.Option("--like", metavar="PATTERN", help="Only names that match this LIKE pattern.")
    ] = None,
    warehouse: _Warehouse = None,
    output: _Output = "table",
    show_sql: _ShowSql = False,
) -> None:
    """SHOW SOURCES."""
    from rw_sql.syntax.statements import ShowObjects

    _run(ShowObjects(kind="SOURCES", like=like), warehouse=warehouse, output=output, show_sql=show_sql)


@source_app.command()
def show(source: _Source, warehouse: _Warehouse = None, output: _Output = "table", show_sql: _ShowSql = False) -> None:
    """SHOW SOURCE SPLITS: the position of each split."""
    from rw_sql.syntax.statements import ShowSourceSplits

    _run(ShowSourceSplits(name=source_name(source)), warehouse=warehouse, output=output, show_sql=show_sql)


@source_app.command()
def pause(
    source: _Source,
    reason: _Reason = None,
    dry_run: _DryRun = False,
    warehouse: _Warehouse = None,
    output: _Output = "table",
    show_sql: _ShowSql = False,
) -> None:
    """PAUSE SOURCE."""
    from rw_sql.syntax.statements import PauseSource

    statement = PauseSource(name=source_name(source), reason=reason)
    _run(statement, warehouse=warehouse, output=output, show_sql=show_sql, dry_run=dry_run)


@source_app.command()
def resume(
    source: _Source,
    reason: _Reason = None,
    dry_run: _DryRun = False,
    warehouse: _Warehouse = None,
    output: _Output = "table",
    show_sql: _ShowSql = False,
) -> None:
    """RESUME SOURCE."""
    from rw_sql.syntax.statements import ResumeSource

    statement = ResumeSource(name=source_name(source), reason=reason)
    _run(statement, warehouse=warehouse, output=output, show_sql=show_sql, dry_run=dry_run)


@source_app.command()
def alter(
    source: _Source,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A property.")] = None,
    secrets: Annotated[
        list[str] | None, typer.Option("--set-secret", metavar="KEY=SECRET", help="A property, by a secret's name.")
    ] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="KEY", help="A property to remove.")] = None,
    allow: _AllowRows = None,
    skip_validate: _SkipValidate = False,
    reason: _Reason = None,
    dry_run: _DryRun = False,
    yes: _Yes = False,
    confirm: _Confirm = None,
    warehouse: _Warehouse = None,
    output: _Output = "table",
    show_sql: _ShowSql = False,
) -> None:
    """ALTER SOURCE … UNSAFE SET. Secrets are named, never written: --set-secret key=name."""
    statement = alter_statement(
        source,
        settings or (),
        secrets or (),
        unset or (),
        allow=allow or (),
        is_validated=not skip_validate,
        reason=reason,
    )
    _run(
        statement,
        warehouse=warehouse,
        output=output,
        show_sql=show_sql,
        dry_run=dry_run,
        is_confirmed=yes,
        tokens=confirm,
    )


@source_app.command("reset-splits")
def reset_splits(
    source: _Source,
    split: _Splits = None,
    forget_offsets: Annotated[
        bool, typer.Option("--forget-offsets", help="Forget the positions of splits that still exist, too.")
    ] = False,
    no_rediscover: Annotated[bool, typer.Option("--no-rediscover", help="Do not discover splits now.")] = False,
    allow: _AllowRows = None,
    skip_validate: _SkipValidate = False,
    reason: _Reason = None,
    dry_run: _DryRun = False,
    yes: _Yes = False,
    confirm: _Confirm = None,
    warehouse: _Warehouse = None,
    output: _Output = "table",
    show_sql: _ShowSql = False,
) -> None:
    """RESET SOURCE SPLITS."""
    from rw_sql.syntax.statements import ResetSourceSplits

    statement = ResetSourceSplits(
        name=source_name(source),
        splits=split_ids(split or ()),
        allow=allowed_words(allow or (), ROWS),
        is_rediscovering=not no_rediscover,
        is_forgetting_offsets=forget_offsets,
        is_validated=not skip_validate,
        reason=reason,
    )
    _run(
        statement,
        warehouse=warehouse,
        output=output,
        show_sql=show_sql,
        dry_run=dry_run,
        is_confirmed=yes,
        tokens=confirm,
    )


@source_app.command("inject-offsets")
def inject_offsets(
    source: _Source,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="SPLIT=OFFSET", help="One split's next offset; null resets it.")
    ] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="FROM FILE.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="FROM GROUP.")] = None,
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", metavar="PATH", help="FROM CHECKPOINT.")] = None,
    from_source: Annotated[str | None, typer.Option("--from-source", metavar="NAME", help="FROM SOURCE.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="WHERE", help="earliest or latest.")] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", help="The same offset in every split.")] = None,
    to_timestamp: Annotated[str | None, typer.Option("--to-timestamp", help="A time with its zone.")] = None,
    shift: Annotated[
        int | None, typer.Option("--shift", help="This many records forward, or back if negative.")
    ] = None,
    back_by: Annotated[
        str | None,
        typer.Option("--back-by", metavar="INTERVAL", help="The first record at or after now minus this time."),
    ] = None,
    split: _Splits = None,
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="WORD", help="gaps, duplicates or clamp; may be repeated.")
    ] = None,
    convention: Annotated[str, typer.Option("--convention", help="next or last_seen.")] = "next",
    skip_validate: _SkipValidate = False,
    reason: _Reason = None,
    dry_run: _DryRun = False,
    yes: _Yes = False,
    confirm: _Confirm = None,
    warehouse: _Warehouse = None,
    output: _Output = "table",
    show_sql: _ShowSql = False,
) -> None:
    """INJECT SOURCE OFFSETS, with exactly one of the targets below."""
    words = TargetWords(
        settings=settings or (),
        file=file,
        group=group,
        checkpoint=checkpoint,
        other=from_source,
        to=to,
        offset=to_offset,
        timestamp=to_timestamp,
        shift=shift,
        back_by=back_by,
    )
    statement = inject_statement(
        source, words, split or (), allow or (), convention=convention, is_validated=not skip_validate, reason=reason
    )
    _run(
        statement,
        warehouse=warehouse,
        output=output,
        show_sql=show_sql,
        dry_run=dry_run,
        is_confirmed=yes,
        tokens=confirm,
    )


@source_app.command("export-offsets")
def export_offsets(
    source: _Source,
    form: Annotated[str, typer.Option("--form", help="map, connect, csv, rpk or spark.")] = "map",
    group: Annotated[str | None, typer.Option("--group", help="The consumer group in the first column of csv.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="The file to write; standard output by default.")
    ] = None,
    fragment: Annotated[
        str | None,
        typer.Option("--fragment", help="The reader whose offsets to export, if the source is not shared: mv-9:7."),
    ] = None,
    warehouse: _Warehouse = None,
    show_sql: _ShowSql = False,
) -> None:
    """Print the offsets of SHOW SOURCE SPLITS in another tool's form."""
    from rw_sql.cli.source_run import export

    export(
        source_name(source),
        form=form,
        group=group,
        file=file,
        fragment=fragment,
        warehouse=warehouse,
        is_shown=show_sql,
    )


@source_app.command()
def undo(
    operation: Annotated[
        int, typer.Option("--operation", metavar="N", help="Its number, from SHOW UNSAFE OPERATIONS.")
    ],
    allow: _AllowRows = None,
    reason: _Reason = None,
    dry_run: _DryRun = False,
    yes: _Yes = False,
    confirm: _Confirm = None,
    warehouse: _Warehouse = None,
    output: _Output = "table",
    show_sql: _ShowSql = False,
) -> None:
    """UNDO OPERATION."""
    from rw_sql.syntax.statements import UndoOperation

    _run(
        UndoOperation(operation=operation, allow=allowed_words(allow or (), ROWS), reason=reason),
        warehouse=warehouse,
        output=output,
        show_sql=show_sql,
        dry_run=dry_run,
        is_confirmed=yes,
        tokens=confirm,
    )


@source_app.command()
def continuity(
    source: _Source, warehouse: _Warehouse = None, output: _Output = "table", show_sql: _ShowSql = False
) -> None:
    """SHOW SOURCE CONTINUITY: the prediction compared with the actual effect."""
    from rw_sql.syntax.statements import ShowSourceContinuity

    _run(ShowSourceContinuity(name=source_name(source)), warehouse=warehouse, output=output, show_sql=show_sql)
