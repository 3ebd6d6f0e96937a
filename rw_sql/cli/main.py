"""The ``rw-sql`` command. Commands import their modules when they run, so that ``--help`` and ``check`` start
quickly."""

from __future__ import annotations

import atexit
import gc
import sys
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rw_sql.cli.checking.check import check_command, export_catalog_command
from rw_sql.cli.checkpoint.command import checkpoint_app
from rw_sql.cli.deploy.commands import apply_command, diff_command, rollback_command
from rw_sql.cli.formatting.command import fmt_command
from rw_sql.cli.interface.completion import (
    INSTALL,
    SHOW,
    RootGroup,
    install_completion,
    prepare_completion,
    show_completion,
)
from rw_sql.cli.interface.error_report import remember_output, report_error
from rw_sql.cli.interface.examples import add_examples
from rw_sql.cli.interface.exit_codes import INTERRUPTED, exit_status
from rw_sql.cli.interface.lost_interrupts import resent_interrupts
from rw_sql.cli.interface.options import GroupOption, WarehouseOption
from rw_sql.cli.interface.standard_streams import usable_streams
from rw_sql.cli.script.command import run_command
from rw_sql.cli.servers.command import dev_app
from rw_sql.cli.service.doctor import doctor_command
from rw_sql.cli.service.status import lineage_command, status_command
from rw_sql.cli.service.takeover import takeover_command
from rw_sql.cli.source.command import source_app
from rw_sql.cli.testing.command import run_test_command
from rw_sql.errors import SqlError
from rw_sql.syntax.lexing.nesting import allow_nesting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer.models import CommandInfo

_FULL = ("apply", "pyspark", "rollback", "run", "serve", "shell", "test")
"""The commands that need Spark."""

_GC_OBJECTS = 500_000


class _App(typer.Typer):
    """Converts a command's error to a message on standard error and an exit status, so that no traceback is shown."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        prepare_completion()
        allow_nesting()
        remember_output("text")
        kwargs.setdefault("prog_name", "rw-sql")
        line = kwargs.get("args") or sys.argv[1:]
        words = sys.argv[1:2] if not args and "args" not in kwargs else ()
        if words and words[0] not in _FULL:
            # Garbage collection would find little: a short command keeps nearly all objects that it creates, 20,000 for
            # the modules and more for each statement.
            gc.set_threshold(_GC_OBJECTS)
            # At exit, Python would collect garbage several times, which takes a tenth of a second and frees nothing.
            atexit.register(gc.freeze)
        try:
            with usable_streams(), resent_interrupts():
                return typer.Typer.__call__(self._only(words), *args, **kwargs)
        except SqlError as error:
            report_error(error)
            raise SystemExit(exit_status(error, line)) from None
        except ModuleNotFoundError as error:
            from rw_sql.packages import missing_package

            command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
            missing = missing_package(error, f"rw-sql {command}".rstrip(), is_full=command in _FULL)
            if missing is None:
                raise
            report_error(missing)
            raise SystemExit(exit_status(missing, line)) from None
        except OSError as error:
            from rw_sql.cli.text_input import unusable_file

            unusable = unusable_file(error)
            if unusable is None:
                raise
            report_error(unusable)
            raise SystemExit(exit_status(unusable, line)) from None
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None

    def _only(self, words: Sequence[str]) -> _App:
        """Returns the app with only the command that the command line names. Building the options of all commands would
        take typer a tenth of a second."""
        commands = [command for command in self.registered_commands if _name(command) in words]
        groups = [group for group in self.registered_groups if group.name in words]
        if not commands and not groups:
            return self
        named = copy(self)
        named.registered_commands, named.registered_groups = commands, groups
        return named


def _name(command: CommandInfo) -> str:
    return command.name or str(getattr(command.callback, "__name__", ""))


app = _App(
    no_args_is_help=True,
    add_completion=False,
    cls=RootGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    install: Annotated[
        str | None,
        typer.Option(
            INSTALL,
            is_eager=True,
            callback=install_completion,
            metavar="[bash|zsh|fish]",
            help="Install completion for a shell, by default $SHELL, and exit.",
        ),
    ] = None,
    show: Annotated[
        str | None,
        typer.Option(
            SHOW,
            is_eager=True,
            callback=show_completion,
            metavar="[bash|zsh|fish]",
            help="Print the completion script for a shell, by default $SHELL, and exit.",
        ),
    ] = None,
) -> None:
    """RisingWave-style sources as a SQL dialect inside PySpark."""


app.command(name="run")(run_command)
app.command(name="test")(run_test_command)


@app.command()
def shell(
    warehouse: WarehouseOption = None,
    commands: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", metavar="TEXT", help="Run these statements and backslash commands, then exit."),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", metavar="FILE", help="Run the statements of this file, then exit."),
    ] = None,
) -> None:
    """Run statements interactively, or run the statements given by -c, by -f or by a pipe.

    With -c, -f or a pipe, the first error ends the run. The exit status is 0 if all statements succeeded, 1 if a
    statement failed or the statements end inside a BEGIN UNSAFE block, 3 if a statement lacks a confirmation, and 130
    after Ctrl-C. In these modes, statements that only read the catalog do not start Spark.
    """
    from rw_sql.cli.shell.loop import run_shell

    raise typer.Exit(run_shell(warehouse=warehouse, commands=commands or (), files=files or ()))


@app.command()
def serve(
    warehouse: WarehouseOption = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="[HOST:]PORT", help="Serve Prometheus metrics at this address.")
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            help="The network interface of the status page. Any interface other than the loopback needs a token.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            "-p",
            min=0,
            max=65535,
            help="The port of the status page. By default 9465, or another free port if 9465 is in use.",
        ),
    ] = None,
    no_http: Annotated[bool, typer.Option("--no-http", help="Serve no status page.")] = False,
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            metavar="PATH",
            help="A file that contains the token of the status page. By default, the token is the value of "
            "$RW_SQL_HTTP_TOKEN.",
        ),
    ] = None,
    log: Annotated[
        str, typer.Option("--log", metavar="FORM", help="The format of the log lines: text or json.")
    ] = "text",
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Spark's master. The default is local[*].")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting. Repeatable.")
    ] = None,
    driver_memory: Annotated[
        str | None,
        typer.Option("--driver-memory", metavar="SIZE", help="The memory of this process's JVM, such as 4g."),
    ] = None,
    resource_group: GroupOption = None,
) -> None:
    """Run the jobs of a warehouse, or of one resource group, until SIGTERM or Ctrl-C."""
    from rw_sql.cli.service.serve import serve_until_told
    from rw_sql.session.spark_settings import settings_of

    serve_until_told(
        warehouse=warehouse,
        metrics=metrics,
        host=host,
        port=port,
        has_http=not no_http,
        token_file=token_file,
        log=log,
        config=settings_of(master, conf or (), driver_memory),
        resource_group=resource_group,
    )


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def pyspark(context: typer.Context) -> None:
    """Start the pyspark shell with Delta and rw_sql attached. This command accepts all arguments of
    pyspark."""
    from rw_sql.cli.pyspark_shell import run_pyspark

    run_pyspark(context.args)


app.command(name="status")(status_command)
app.command(name="lineage")(lineage_command)
app.command(name="doctor")(doctor_command)
app.command(name="takeover")(takeover_command)
app.command(name="fmt")(fmt_command)
app.command(name="check")(check_command)
app.command(name="export-catalog")(export_catalog_command)
app.command(name="diff")(diff_command)
app.command(name="apply")(apply_command)
app.command(name="rollback")(rollback_command)
app.add_typer(source_app, name="source")
app.add_typer(checkpoint_app, name="checkpoint")
app.add_typer(dev_app, name="dev")
add_examples(app)

if __name__ == "__main__":
    app()
