"""Implements ``rw-sql --install-completion [SHELL]``, the completion of commands, options and values in bash, zsh and
fish."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from rw_sql.cli.interface.exit_codes import FAILED, tells_difference
from rw_sql.cli.interface.misplaced_words import misplaced_word
from rw_sql.errors import INVALID_OPTION, SqlError, either

SHELLS = ("bash", "zsh", "fish")
INSTALL, SHOW = "--install-completion", "--show-completion"
_THIS = "this"
_VARIABLE = "_RW_SQL_COMPLETE"
_WORDS = "rw_sql.words"


class RootGroup(TyperGroup):
    """The root command. Its completion options have an optional value, the name of a shell. The default is the running
    shell.

    If a word of the command line lacks the option that must precede the word, the hint of the error is the corrected
    command line.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Inserts the name of the running shell if a completion option has no value."""
        for option in (INSTALL, SHOW):
            if option in args:
                at = args.index(option) + 1
                if at == len(args) or args[at].startswith("-"):
                    args.insert(at, _THIS)
        ctx.meta[_WORDS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command. Raises SqlError INVALID_OPTION if a word lacks the option that must precede it.

        After Ctrl-C, typer ends the process without a message. If the interrupt has a message, for example that the
        statement is committed, this method prints the message.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            if str(interrupt):
                from rw_sql.cli.terminal.output import print_cancelled

                print_cancelled(f"cancelled: {interrupt}")
            raise
        except Exception as error:
            if not hasattr(error, "format_message"):  # an error about the command line
                raise
            misplaced = misplaced_word(error, ctx.meta[_WORDS])
            if misplaced is None:
                if tells_difference(ctx.meta[_WORDS]):
                    error.exit_code = FAILED  # type: ignore[attr-defined]  # typer ends the process with this status
                raise
            raise misplaced from None


def prepare_completion() -> None:
    """If a shell has started this process to get completions, prepares the process for its answer."""
    if _VARIABLE in os.environ:
        _typer().completion_init()


def install_completion(shell: str | None) -> None:
    """Writes the shell's completion into the user's files, and ends the command. Does nothing if ``shell`` is None."""
    if shell is None:
        return
    typers = _typer()
    typers.completion_init()
    name, path = typers.install(shell=_chosen(shell, INSTALL), prog_name="rw-sql", complete_var=_VARIABLE)
    typer.echo(f"completion for {name} is in {path}; start a new {name} to use it")
    raise typer.Exit


def show_completion(shell: str | None) -> None:
    """Prints the shell's completion script, and ends the command. Does nothing if ``shell`` is None."""
    if shell is None:
        return
    typers = _typer()
    typers.completion_init()
    chosen = _chosen(shell, SHOW)
    typer.echo(typers.get_completion_script(prog_name="rw-sql", complete_var=_VARIABLE, shell=chosen))
    raise typer.Exit


def _typer() -> Any:
    # typer.completion implements --install-completion and --show-completion, but typer's own options do not accept the
    # name of a shell. The functions of typer.completion have had these names since typer 0.12.
    return import_module("typer.completion")


def _chosen(shell: str, option: str) -> str:
    name = Path(os.environ.get("SHELL", "")).name if shell == _THIS else shell
    if name not in SHELLS:
        found = f"{shell!r}" if shell != _THIS else f"{os.environ.get('SHELL', '')!r} ($SHELL)"
        raise SqlError(INVALID_OPTION, f"{option} must be {either(SHELLS)}, but is {found}", hint=f"{option} bash")
    return name


def complete_words(*words: str) -> Any:
    """Returns a function that completes an option's value from a fixed list of words. In a list separated by commas,
    the function completes the last word."""

    def complete(incomplete: str) -> list[str]:
        # In a comma-separated list, each word is completed separately.
        done, comma, last = incomplete.rpartition(",")
        return [f"{done}{comma}{word}" for word in words if word.startswith(last)]

    return complete
