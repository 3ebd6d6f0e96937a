"""The ``rw-sql`` command. Commands import what they need when they run, so that ``--help`` and ``check`` stay quick."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rw_sql.cli.check import check_command
from rw_sql.cli.checkpoint import checkpoint_app
from rw_sql.cli.deploy.commands import apply_command, diff_command, rollback_command
from rw_sql.cli.dev import dev_app
from rw_sql.cli.fmt import fmt_command
from rw_sql.cli.source import source_app
from rw_sql.errors import SqlError

_WAREHOUSE = typer.Option(
    "--warehouse",
    "-w",
    metavar="PATH",
    envvar="RW_SQL_WAREHOUSE",
    help="The folder or URI of tables and metadata. ./rw_warehouse by default.",
)
_Warehouse = Annotated[str | None, _WAREHOUSE]


class _App(typer.Typer):
    """A command's error is a message on standard error and exit status 1, never a traceback."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except SqlError as error:
            from rw_sql.cli.output import print_error

            print_error(error.render())
            raise SystemExit(1) from None
        except KeyboardInterrupt:
            raise SystemExit(130) from None


app = _App(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        import rw_sql

        typer.echo(f"rw-sql {rw_sql.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """RisingWave-style sources as a SQL dialect inside PySpark."""


@app.command()
def run(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A file of SQL statements; - reads standard input.")],
    warehouse: _Warehouse = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Confirm unsafe statements without asking; predicted loss must be listed in ALLOW."),
    ] = False,
    confirm: Annotated[
        list[str] | None,
        typer.Option("--confirm", metavar="TOKEN", help="Confirm the request that was refused with this token."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results without the statements.")] = False,
) -> None:
    """Run a script's statements one by one; stop at the first error."""
    from rw_sql.cli.run import run_file

    run_file(script, warehouse=warehouse, is_confirmed=yes, tokens=frozenset(confirm or ()), is_quiet=quiet)


@app.command()
def shell(warehouse: _Warehouse = None) -> None:
    """Run statements interactively."""
    from rw_sql.cli.shell import run_shell

    run_shell(warehouse=warehouse)


@app.command()
def serve(
    warehouse: _Warehouse = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="[HOST:]PORT", help="Serve Prometheus metrics at this address.")
    ] = None,
) -> None:
    """Run the jobs of a warehouse until SIGTERM or Ctrl-C."""
    from rw_sql.cli.serve import serve_until_told

    serve_until_told(warehouse=warehouse, metrics=metrics)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def pyspark(context: typer.Context) -> None:
    """Start the pyspark shell with Delta and rw_sql attached; takes all of pyspark's arguments."""
    from rw_sql.cli.pyspark_shell import run_pyspark

    run_pyspark(context.args)


app.command(name="fmt")(fmt_command)
app.command(name="check")(check_command)
app.command(name="diff")(diff_command)
app.command(name="apply")(apply_command)
app.command(name="rollback")(rollback_command)
app.add_typer(source_app, name="source")
app.add_typer(checkpoint_app, name="checkpoint")
app.add_typer(dev_app, name="dev")
