"""Defines ``rw-sql source``, the commands for the statements about one source. The option ``--show-sql`` prints the
statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rw_sql.cli.interface.options import (
    MOVE_OUTPUT,
    AllowOffsets,
    AllowRows,
    BackBy,
    Confirm,
    DryRun,
    FileToRead,
    FileToWrite,
    FromCheckpoint,
    FromGroup,
    LastSeen,
    NoValidate,
    Reason,
    Settings,
    ShiftBy,
    ShowSql,
    Splits,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTimestamp,
    WarehouseOption,
    Yes,
    allow_words,
    given,
    old_name,
    output_option,
)
from rw_sql.model.offset_files import FORMS

if TYPE_CHECKING:
    from rw_sql.syntax.statements import Statement

source_app = typer.Typer(no_args_is_help=True, help="Show and move sources. Each command runs one SQL statement.")

_Source = Annotated[str, typer.Option("--source", "-s", metavar="NAME", help="The source's name.")]
_Output = Annotated[str, output_option("text", "json")]
_MoveOutput = Annotated[str, MOVE_OUTPUT]
_OldSkipValidate = Annotated[bool, old_name("--skip-validate", "--no-validate")]


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
    from rw_sql.cli.source.running import run_statement

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
        str | None, typer.Option("--like", metavar="PATTERN", help="Only sources whose name matches this LIKE pattern.")
    ] = None,
    warehouse: WarehouseOption = None,
    output: _Output = "text",
    show_sql: ShowSql = False,
) -> None:
    """List the sources (SHOW SOURCES)."""
    from rw_sql.syntax.statements import ShowObjects

    _run(ShowObjects(kind="SOURCES", like=like), warehouse=warehouse, output=output, show_sql=show_sql)


@source_app.command()
def show(
    source: _Source, warehouse: WarehouseOption = None, output: _Output = "text", show_sql: ShowSql = False
) -> None:
    """Show the position of each split of a source (SHOW SOURCE SPLITS)."""
    from rw_sql.cli.source.statements import source_name
    from rw_sql.syntax.statements import ShowSourceSplits

    _run(ShowSourceSplits(name=source_name(source)), warehouse=warehouse, output=output, show_sql=show_sql)


@source_app.command()
def pause(
    source: _Source,
    reason: Reason = None,
    dry_run: DryRun = False,
    warehouse: WarehouseOption = None,
    output: _MoveOutput = "text",
    show_sql: ShowSql = False,
) -> None:
    """Pause a source (PAUSE SOURCE)."""
    from rw_sql.cli.source.statements import source_name
    from rw_sql.syntax.statements import PauseSource

    statement = PauseSource(name=source_name(source), reason=reason)
    _run(statement, warehouse=warehouse, output=output, show_sql=show_sql, dry_run=dry_run)


@source_app.command()
def resume(
    source: _Source,
    reason: Reason = None,
    dry_run: DryRun = False,
    warehouse: WarehouseOption = None,
    output: _MoveOutput = "text",
    show_sql: ShowSql = False,
) -> None:
    """Resume a source (RESUME SOURCE)."""
    from rw_sql.cli.source.statements import source_name
    from rw_sql.syntax.statements import ResumeSource

    statement = ResumeSource(name=source_name(source), reason=reason)
    _run(statement, warehouse=warehouse, output=output, show_sql=show_sql, dry_run=dry_run)


@source_app.command()
def alter(
    source: _Source,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A property to set.")] = None,
    secrets: Annotated[
        list[str] | None,
        typer.Option(
            "--set-secret", metavar="KEY=SECRET", help="A property whose value is a secret; specify the secret's name."
        ),
    ] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="KEY", help="A property to remove.")] = None,
    allow: AllowRows = None,
    no_validate: NoValidate = False,
    skip_validate: _OldSkipValidate = False,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    confirm: Confirm = None,
    warehouse: WarehouseOption = None,
    output: _MoveOutput = "text",
    show_sql: ShowSql = False,
) -> None:
    """Change properties of a source (ALTER SOURCE … UNSAFE SET).

    To set a property to a secret, use --set-secret KEY=NAME with the secret's name.
    """
    from rw_sql.cli.source.statements import alter_statement

    statement = alter_statement(
        source,
        settings or (),
        secrets or (),
        unset or (),
        allow=allow_words(allow),
        is_validated=not (no_validate or skip_validate),
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
    split: Splits = None,
    forget_offsets: Annotated[
        bool, typer.Option("--forget-offsets", help="Also forget the positions of splits that still exist.")
    ] = False,
    no_rediscover: Annotated[bool, typer.Option("--no-rediscover", help="Do not discover splits now.")] = False,
    allow: AllowRows = None,
    no_validate: NoValidate = False,
    skip_validate: _OldSkipValidate = False,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    confirm: Confirm = None,
    warehouse: WarehouseOption = None,
    output: _MoveOutput = "text",
    show_sql: ShowSql = False,
) -> None:
    """Discard splits that no longer exist, and discover new ones (RESET SOURCE SPLITS)."""
    from rw_sql.cli.source.statements import ROWS, allowed_words, source_name, split_ids
    from rw_sql.syntax.statements import ResetSourceSplits

    statement = ResetSourceSplits(
        name=source_name(source),
        splits=split_ids(split or ()),
        allow=allowed_words(allow_words(allow), ROWS),
        is_rediscovering=not no_rediscover,
        is_forgetting_offsets=forget_offsets,
        is_validated=not (no_validate or skip_validate),
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
    settings: Settings = None,
    file: FileToRead = None,
    from_group: FromGroup = None,
    from_checkpoint: FromCheckpoint = None,
    from_source: Annotated[
        str | None, typer.Option("--from-source", metavar="NAME", help="Move to the positions of another source.")
    ] = None,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_offset: ToOffset = None,
    to_timestamp: ToTimestamp = None,
    shift_by: ShiftBy = None,
    back_by: BackBy = None,
    split: Splits = None,
    allow: AllowOffsets = None,
    last_seen: LastSeen = False,
    old_group: Annotated[str | None, old_name("--group", "--from-group")] = None,
    old_checkpoint: Annotated[str | None, old_name("--checkpoint", "--from-checkpoint")] = None,
    old_to: Annotated[str | None, old_name("--to", "--to-earliest or --to-latest")] = None,
    old_shift: Annotated[int | None, old_name("--shift", "--shift-by")] = None,
    old_convention: Annotated[str | None, old_name("--convention", "--last-seen")] = None,
    no_validate: NoValidate = False,
    skip_validate: _OldSkipValidate = False,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    confirm: Confirm = None,
    warehouse: WarehouseOption = None,
    output: _MoveOutput = "text",
    show_sql: ShowSql = False,
) -> None:
    """Set the positions of a source (INJECT SOURCE OFFSETS).

    The new positions must come from exactly one option: --set (once for each split), --file, --from-group,
    --from-checkpoint, --from-source, --to-earliest, --to-latest, --to-offset, --to-timestamp, --shift-by or --back-by.
    """
    from rw_sql.cli.source.statements import TargetWords, inject_statement

    words = TargetWords(
        settings=settings or (),
        file=file,
        groups=given(from_group, old_group),
        checkpoints=given(from_checkpoint, old_checkpoint),
        other=from_source,
        bounds=given(to_earliest and "earliest", to_latest and "latest", old_to),
        offset=to_offset,
        timestamp=to_timestamp,
        shifts=given(shift_by, old_shift),
        back_by=back_by,
    )
    statement = inject_statement(
        source,
        words,
        split or (),
        allow_words(allow),
        convention="last_seen" if last_seen else old_convention or "next",
        is_validated=not (no_validate or skip_validate),
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


@source_app.command("export-offsets")
def export_offsets(
    source: _Source,
    output: Annotated[str, output_option(*FORMS, help="The format of the offsets.")] = FORMS[0],
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="The consumer group in the first column of the CSV.")
    ] = None,
    file: FileToWrite = None,
    fragment: Annotated[
        str | None,
        typer.Option(
            "--fragment",
            metavar="ID",
            help="Export the offsets of this reader, such as mv-9:7. Needed only if the source is not shared.",
        ),
    ] = None,
    warehouse: WarehouseOption = None,
    show_sql: ShowSql = False,
    old_form: Annotated[str | None, old_name("--form", "--output")] = None,
) -> None:
    """Print the offsets of SHOW SOURCE SPLITS in the format of another tool."""
    from rw_sql.cli.source.running import export
    from rw_sql.cli.source.statements import source_name

    export(
        source_name(source),
        form=old_form or output,
        group=group,
        file=file,
        fragment=fragment,
        warehouse=warehouse,
        is_shown=show_sql,
    )


@source_app.command()
def undo(
    operation: Annotated[
        int, typer.Option("--operation", metavar="N", help="The operation's number, from SHOW UNSAFE OPERATIONS.")
    ],
    allow: AllowRows = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    confirm: Confirm = None,
    warehouse: WarehouseOption = None,
    output: _MoveOutput = "text",
    show_sql: ShowSql = False,
) -> None:
    """Undo an operation (UNDO OPERATION)."""
    from rw_sql.cli.source.statements import ROWS, allowed_words
    from rw_sql.syntax.statements import UndoOperation

    _run(
        UndoOperation(operation=operation, allow=allowed_words(allow_words(allow), ROWS), reason=reason),
        warehouse=warehouse,
        output=output,
        show_sql=show_sql,
        dry_run=dry_run,
        is_confirmed=yes,
        tokens=confirm,
    )


@source_app.command()
def continuity(
    source: _Source, warehouse: WarehouseOption = None, output: _Output = "text", show_sql: ShowSql = False
) -> None:
    """Compare the predicted effect of unsafe operations with their actual effect (SHOW SOURCE CONTINUITY)."""
    from rw_sql.cli.source.statements import source_name
    from rw_sql.syntax.statements import ShowSourceContinuity

    _run(ShowSourceContinuity(name=source_name(source)), warehouse=warehouse, output=output, show_sql=show_sql)
