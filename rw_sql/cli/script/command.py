"""The command line of ``rw-sql run``."""

from __future__ import annotations

from typing import Annotated

import typer

from rw_sql.cli.interface.exit_codes import UNUSABLE
from rw_sql.cli.interface.options import Confirm, Env, Variables, WarehouseOption, Yes, output_option, require_output
from rw_sql.errors import SqlError

OUTPUTS = ("text", "json", "junit")
_REPORT = "The output format. json and junit are written after the last statement."


def run_command(
    files: Annotated[
        list[str], typer.Argument(metavar="FILES|-", help="Files of SQL statements; - reads standard input.")
    ],
    warehouse: WarehouseOption = None,
    variables: Variables = None,
    env: Env = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Run nothing: EXPLAIN each statement on the catalog that would result from the statements before it.",
        ),
    ] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going/--stop-on-error", help="After an error, run the remaining statements too.")
    ] = False,
    output: Annotated[str, output_option(*OUTPUTS, help=_REPORT)] = "text",
    yes: Yes = False,
    confirm: Confirm = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results without the statements.")] = False,
) -> None:
    """Run the statements of files one by one; stop at the first error.

    The exit status is 0 if all statements succeeded, 1 if a statement failed, 3 if a statement lacks a confirmation,
    and 130 after Ctrl-C. The exit status is 2 if nothing was run because the command line, a file or a variable is
    wrong.
    """
    from rw_sql.cli.interface.error_report import report_error
    from rw_sql.cli.script.environments import environments_of
    from rw_sql.cli.script.loading import load_scripts, read_assignments
    from rw_sql.cli.script.running import RunOptions, run_scripts

    require_output(output, OUTPUTS)
    try:
        scripts, hide = load_scripts(files, read_assignments(variables or ()), environments_of(env))
    except SqlError as error:
        report_error(error)
        raise typer.Exit(UNUSABLE) from None
    options = RunOptions(
        warehouse=warehouse,
        is_confirmed=yes,
        tokens=frozenset(confirm or ()),
        is_quiet=quiet,
        keeps_going=keep_going,
        is_dry=dry_run,
        output=output,
    )
    raise typer.Exit(run_scripts(scripts, options, hide).exit_status)
