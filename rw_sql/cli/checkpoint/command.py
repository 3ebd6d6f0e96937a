"""Defines ``rw-sql checkpoint``, the commands for Structured Streaming checkpoints that were made without rw_sql. These
commands need neither Spark nor Java."""

from __future__ import annotations

from typing import Annotated

import typer

from rw_sql.cli.interface.options import (
    MOVE_OUTPUT,
    AllowOffsets,
    BackBy,
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
    Yes,
    allow_words,
    old_name,
    output_option,
    require_move_output,
    require_output,
)
from rw_sql.model.offset_files import FORMS

checkpoint_app = typer.Typer(
    no_args_is_help=True,
    help="Show, export and rewrite the offsets of Structured Streaming jobs made without rw_sql. Does not start Spark.",
)

_Path = Annotated[str, typer.Argument(metavar="PATH", help="The job's checkpointLocation: a folder or a URI.")]
_Output = Annotated[str, output_option("text", "json")]
_MoveOutput = Annotated[str, MOVE_OUTPUT]
_Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Check the offsets against these Kafka brokers."),
]
_Property = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="KEY=VALUE",
        help="Another property of the Kafka client, named as in SQL: properties.NAME=VALUE.",
    ),
]
_Secret = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", metavar="KEY=VARIABLE", help="A property whose value is read from an environment variable."
    ),
]
_Table = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="PATH",
        help="Check the versions of the checkpoint against this Delta table, which the job reads.",
    ),
]
_Stopped = Annotated[bool, typer.Option("--assume-stopped", help="Assert that the job is stopped on every machine.")]
_Watch = Annotated[
    str | None,
    typer.Option(
        "--watch",
        metavar="10s",
        help="How long to watch the checkpoint's files for changes before the rewrite. 3s by default.",
    ),
]


@checkpoint_app.command()
def show(
    path: _Path,
    bootstrap: _Bootstrap = None,
    property: _Property = None,
    secret: _Secret = None,
    table: _Table = None,
    output: _Output = "text",
    show_sql: ShowSql = False,
) -> None:
    """Show a checkpoint's last committed batch, positions, watermark and stateful operators."""
    from rw_sql.cli.checkpoint.running import Upstreams, show_checkpoint

    upstreams = Upstreams.of(bootstrap, property, secret, table)
    show_checkpoint(path, upstreams, is_json=_is_json(output), is_sql_only=show_sql)


@checkpoint_app.command()
def export(
    path: _Path,
    output: Annotated[str, output_option(*FORMS, help="The format of the offsets.")] = FORMS[0],
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="The consumer group in the first column of the CSV.")
    ] = None,
    file: FileToWrite = None,
    old_form: Annotated[str | None, old_name("--form", "--output")] = None,
) -> None:
    """Print the job's positions in the format of rw_sql or of another tool. The format spark is the format of
    Spark's option startingOffsets."""
    from rw_sql.cli.checkpoint.running import export_checkpoint

    export_checkpoint(path, form=old_form or output, group=group, file=file)


@checkpoint_app.command(name="set-offsets")
def set_offsets(
    path: _Path,
    settings: Settings = None,
    file: FileToRead = None,
    from_group: FromGroup = None,
    from_checkpoint: FromCheckpoint = None,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_offset: ToOffset = None,
    to_timestamp: ToTimestamp = None,
    shift_by: ShiftBy = None,
    back_by: BackBy = None,
    split: Splits = None,
    allow: AllowOffsets = None,
    last_seen: LastSeen = False,
    exactly: Annotated[
        bool,
        typer.Option(
            "--exactly", help="Forget the positions of all other partitions, for a job that moves to another topic."
        ),
    ] = False,
    bootstrap: _Bootstrap = None,
    property: _Property = None,
    secret: _Secret = None,
    table: _Table = None,
    no_validate: NoValidate = False,
    watch: _Watch = None,
    reason: Reason = None,
    assume_stopped: _Stopped = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    show_sql: ShowSql = False,
    output: _MoveOutput = "text",
) -> None:
    """Rewrite the positions of a stopped job. The job keeps its state. The command keeps a backup of the
    files that it replaces. To restore these files, run: rw-sql checkpoint undo."""
    from rw_sql.cli.checkpoint.running import Upstreams, move_checkpoint, statement_of, target_of

    require_move_output(output, is_dry_run=dry_run)
    target = target_of(
        set_=settings or [],
        file=file,
        from_group=from_group,
        from_checkpoint=from_checkpoint,
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_timestamp=to_timestamp,
        shift_by=shift_by,
        back_by=back_by,
    )
    upstreams = Upstreams.of(bootstrap, property, secret, table)
    statement = statement_of(
        path,
        target,
        upstreams,
        splits=split or [],
        allow=allow_words(allow),
        is_last_seen=last_seen,
        is_exactly=exactly,
        is_validated=not no_validate,
        watch=watch,
        reason=reason,
        is_assumed_stopped=assume_stopped,
    )
    move_checkpoint(statement, upstreams, is_yes=yes, is_dry_run=dry_run, is_sql_only=show_sql, output=output)


@checkpoint_app.command()
def undo(
    path: _Path,
    watch: _Watch = None,
    assume_stopped: _Stopped = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: _MoveOutput = "text",
) -> None:
    """Restore the files that the last rewrite replaced. The command is refused if the job has been started since the
    rewrite."""
    from rw_sql.cli.checkpoint.running import undo_checkpoint

    require_move_output(output, is_dry_run=dry_run)
    undo_checkpoint(
        path,
        watch=watch,
        is_assumed_stopped=assume_stopped,
        is_yes=yes,
        is_dry_run=dry_run,
        output=output,
    )


def _is_json(output: str) -> bool:
    # "table" is the old name of "text".
    require_output("text" if output == "table" else output, ("text", "json"))
    return output == "json"
