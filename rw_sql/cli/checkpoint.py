"""``rw-sql checkpoint``: Structured Streaming checkpoints that were made without rw_sql. Needs no Spark and no Java."""

from __future__ import annotations

from typing import Annotated

import typer

from rw_sql.errors import INVALID_OPTION, SqlError

checkpoint_app = typer.Typer(
    no_args_is_help=True,
    help="Show, export and rewrite the offsets of Structured Streaming jobs made without rw_sql. No Spark needed.",
)

_Path = Annotated[str, typer.Argument(metavar="PATH", help="The job's checkpointLocation: a folder or a URI.")]
_Output = Annotated[str, typer.Option("--output", metavar="table|json", help="How results are printed.")]
_Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap", metavar="HOST:PORT", help="Kafka's brokers, to check offsets against.")
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
    typer.Option("--secret", metavar="KEY=VARIABLE", help="A secret property, from an environment variable."),
]
_Table = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="PATH", help="A Delta table that the job reads, to check versions against."),
]
_Stopped = Annotated[bool, typer.Option("--assume-stopped", help="Assert that the job is stopped on every machine.")]
_Yes = Annotated[bool, typer.Option("--yes", help="Confirm without asking.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the preview and change nothing.")]
_ShowSql = Annotated[bool, typer.Option("--show-sql", help="Print the SQL statement of this command and do nothing.")]
_Watch = Annotated[
    str | None,
    typer.Option(
        "--watch", metavar="10s", help="How long the files must not change before the rewrite. 3s by default."
    ),
]


@checkpoint_app.command()
def show(
    path: _Path,
    bootstrap: _Bootstrap = None,
    property: _Property = None,
    secret: _Secret = None,
    table: _Table = None,
    output: _Output = "table",
    show_sql: _ShowSql = False,
) -> None:
    """Show the newest committed batch, positions, watermark and stateful operators."""
    from rw_sql.cli.checkpoint_run import Upstreams, show_checkpoint

    upstreams = Upstreams.of(bootstrap, property, secret, table)
    show_checkpoint(path, upstreams, is_json=_is_json(output), is_sql_only=show_sql)


@checkpoint_app.command()
def export(
    path: _Path,
    form: Annotated[
        str, typer.Option("--form", metavar="map|spark|connect|csv|rpk", help="The form of the offsets.")
    ] = "map",
    group: Annotated[str | None, typer.Option("--group", help="The consumer group to name in the form csv.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="The file to write; standard output by default.")
    ] = None,
) -> None:
    """Print the job's positions, in rw_sql's form or another tool's (spark: for startingOffsets)."""
    from rw_sql.cli.checkpoint_run import export_checkpoint

    export_checkpoint(path, form=form, group=group, file=file)


@checkpoint_app.command(name="set-offsets")
def set_offsets(
    path: _Path,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SPLIT=N", help="The next position of one split: orders:0=42, version=7."),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="Offsets from a file, in any known form.")
    ] = None,
    from_group: Annotated[str | None, typer.Option("--from-group", help="A consumer group's offsets.")] = None,
    from_checkpoint: Annotated[
        str | None, typer.Option("--from-checkpoint", metavar="PATH", help="The positions of another checkpoint.")
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="The first record that still exists.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="The present end.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", help="The same position in every split.")] = None,
    to_timestamp: Annotated[
        str | None, typer.Option("--to-timestamp", help="The first record at or after a time: '2026-01-31 08:00:00Z'.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="±N", help="Relative to the position of each split.")
    ] = None,
    back_by: Annotated[
        str | None, typer.Option("--back-by", metavar="'2 hours'", help="Start at records this long ago.")
    ] = None,
    split: Annotated[
        list[str] | None, typer.Option("--split", metavar="SPLIT", help="Only this split; may be repeated.")
    ] = None,
    allow: Annotated[
        str, typer.Option("--allow", metavar="gaps,duplicates,clamp", help="Predicted loss to accept.")
    ] = "",
    last_seen: Annotated[
        bool, typer.Option("--last-seen", help="The given offsets are those of the last record read, not the next one.")
    ] = False,
    exactly: Annotated[
        bool, typer.Option("--exactly", help="Forget every other partition: for a job that moves to another topic.")
    ] = False,
    bootstrap: _Bootstrap = None,
    property: _Property = None,
    secret: _Secret = None,
    table: _Table = None,
    no_validate: Annotated[
        bool, typer.Option("--no-validate", help="Skip checking offsets against the upstream.")
    ] = False,
    watch: _Watch = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Stored with the backup.")] = None,
    assume_stopped: _Stopped = False,
    yes: _Yes = False,
    dry_run: _DryRun = False,
    show_sql: _ShowSql = False,
    output: _Output = "table",
) -> None:
    """Rewrite the positions of a stopped job. Its state and a backup are kept; undo restores the backup."""
    from rw_sql.cli.checkpoint_run import Upstreams, move_checkpoint, statement_of, target_of

    target = target_of(
        set_=set_ or [],
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
        allow=allow,
        is_last_seen=last_seen,
        is_exactly=exactly,
        is_validated=not no_validate,
        watch=watch,
        reason=reason,
        is_assumed_stopped=assume_stopped,
    )
    move_checkpoint(
        statement, upstreams, is_yes=yes, is_dry_run=dry_run, is_sql_only=show_sql, is_json=_is_json(output)
    )


@checkpoint_app.command()
def undo(
    path: _Path,
    watch: _Watch = None,
    assume_stopped: _Stopped = False,
    yes: _Yes = False,
    dry_run: _DryRun = False,
    output: _Output = "table",
) -> None:
    """Restore the files that the newest rewrite replaced, unless the job was started since."""
    from rw_sql.cli.checkpoint_run import undo_checkpoint

    undo_checkpoint(
        path,
        watch=watch,
        is_assumed_stopped=assume_stopped,
        is_yes=yes,
        is_dry_run=dry_run,
        is_json=_is_json(output),
    )


def _is_json(output: str) -> bool:
    if output not in ("table", "json"):
        raise SqlError(INVALID_OPTION, f'--output must be table or json, found: "{output}"')
    return output == "json"
