"""Reads statements and commands from a terminal, a pipe, ``-c`` or ``-f``, runs them, and prints the results."""

from __future__ import annotations

import logging
import signal
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from rich.text import Text

from rw_sql.cli.interface.exit_codes import DONE, FAILED, INTERRUPTED, REFUSED, is_refused
from rw_sql.cli.open_block import open_block
from rw_sql.cli.script.loading import hiding_of
from rw_sql.cli.shell.backend import Backend, listed
from rw_sql.cli.shell.commands import HELP, listing, split_commands, switched, unknown
from rw_sql.cli.shell.outside import edited, run_command, show_paged
from rw_sql.cli.shell.result_forms import JOBS, definition_of, jobs_in_short
from rw_sql.cli.spark_start import beside_prompt
from rw_sql.cli.terminal.output import console_for, fits, print_cancelled, print_error, print_rows
from rw_sql.cli.terminal.question import choose_answer
from rw_sql.cli.terminal.status_line import StatusLine, elapsed, own_stderr
from rw_sql.cli.text_input import read_text
from rw_sql.errors import (
    FILE_UNREADABLE,
    INVALID_COMMAND,
    STORE_UNREACHABLE,
    UNDEFINED_OBJECT,
    UPSTREAM_UNREACHABLE,
    SqlError,
)
from rw_sql.syntax import parse_statement, split_script
from rw_sql.syntax.lexing.first_words import is_explain
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.lexing.tokens import scan
from rw_sql.syntax.statements import Name
from rw_sql.syntax.variables.expand import expand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prompt_toolkit import PromptSession

    from rw_sql.cli.shell.commands import Piece
    from rw_sql.cli.terminal.output import Layout
    from rw_sql.session.attach import Question
    from rw_sql.session.results import Rows
    from rw_sql.syntax import ScriptStatement
    from rw_sql.syntax.variables.source_map import Expanded

_LONG_SECONDS = 10.0
"""If a statement takes at least this long, its duration is also printed in minutes and seconds."""

_WATCH_SECONDS, _MOST_WATCH_SECONDS = 2.0, 86_400.0
logger = logging.getLogger(__name__)

_PASSING = (STORE_UNREACHABLE, UPSTREAM_UNREACHABLE)
"""The errors that do not end ``\\watch``: the next run of the statement may succeed."""

_CREATED = {"sink": "SINK", "connection": "CONNECTION", "secret": "SECRET", "source": "SOURCE", "table": "TABLE"}


class Shell:
    """The state of one shell, which persists between inputs."""

    def __init__(self, backend: Backend, *, is_interactive: bool) -> None:
        self.backend = backend
        self.edited = ""
        self._is_interactive = is_interactive
        self._console = console_for()
        # The status line gets its own copy of standard error. While Spark starts, standard error itself is redirected
        # to a file; without the copy, a half-written status line would go into that file.
        self._status = StatusLine(backend.progress, stream=own_stderr())
        self._layout: Layout = "auto"
        self._is_timed = is_interactive
        self._is_paged = is_interactive
        self._variables: dict[str, str] = {}
        self._last = ""
        self._out: TextIO | None = None
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """True if a command has ended the shell."""
        return self._is_over

    def run(self, text: str) -> int:
        """Runs statements and commands until the first error, and prints results and errors. Returns an exit status."""
        try:
            self._run_pieces(_with_next(split_commands(text)))
        except SqlError as error:
            print_error(error.render())
            return REFUSED if is_refused(error) else FAILED
        except KeyboardInterrupt as interrupt:
            print_cancelled(f"cancelled: {interrupt}" if str(interrupt) else "cancelled")
            return INTERRUPTED
        except ModuleNotFoundError:
            raise  # rw_sql.cli.main tells the user how to install the package.
        except Exception as error:
            # This process may run the warehouse's jobs, so the error of a statement must not end the process.
            logger.debug("a statement failed", exc_info=True)
            print_error(f"{type(error).__name__}: {error}")
            return FAILED
        return DONE

    def _run_pieces(self, pieces: Sequence[tuple[Piece, Piece | None]]) -> None:
        for number, (piece, after) in enumerate(pieces):
            try:
                if piece.kind == "command":
                    self._command(piece)
                elif after is None or after.name not in ("watch", "g", "gx", "e"):
                    self._run_timed(piece.text)
                else:
                    self._last = piece.text
            except BaseException:
                if any(left.kind == "statements" or left.name in ("watch", "g", "gx") for left, _ in pieces[number:]):
                    self.backend.abort_block()  # COMMIT must not run a block without the failed statement.
                raise
            if self._is_over:
                break

    def _run_timed(self, text: str, layout: Layout | None = None) -> None:
        started = time.monotonic()
        if self._run_statements(text, layout or self._layout) and self._is_timed:
            self._console.print(Text(_duration(time.monotonic() - started), style="dim"))

    def _run_statements(self, text: str, layout: Layout) -> bool:
        """Runs statements; returns False if the text contains no statement."""
        expanded = expand(text, self._variables, read_text)
        self._variables = expanded.variables_after(self._variables)
        echoes = list(expanded.echoes)
        parts = split_script(expanded.text)
        if parts:
            self._last = text
        try:
            for part in parts:
                while echoes and echoes[0].at <= part.start:
                    self._say(echoes.pop(0).text)
                self._run_part(part, expanded, layout)
        except SqlError as error:
            raise hiding_of(self._variables).error(expanded.locate(error)) from error.__cause__
        for echo in echoes:
            self._say(echo.text)
        return bool(parts)

    def _run_part(self, part: ScriptStatement, expanded: Expanded, layout: Layout) -> None:
        with self._status.running():
            try:
                early = self.backend.answer_early(part.text)
            except SqlError as error:
                raise error.moved_into(expanded.text, part.start, part.line, part.column, None) from error.__cause__
            if early is not None:
                from rw_sql.session.results import rows_of

                rows: Rows | None = rows_of(early)
            else:
                rows = self._run_by_spark(part, expanded)
        if rows is not None:
            self._show(rows, part.text, layout)

    def _run_by_spark(self, part: ScriptStatement, expanded: Expanded) -> Rows | None:
        attached = self.backend.attached()
        from rw_sql.session.results import read_rows
        from rw_sql.session.scripts import answering, run_part

        found: list[Rows] = []
        chosen = choose_answer(self._console, is_confirmed=False, tokens=frozenset())

        def answer(question: Question) -> bool:
            assert chosen is not None
            with self._status.hidden():
                try:
                    preview = hiding_of(self._variables).values(question.preview)
                    return chosen(replace(question, preview=preview))
                except KeyboardInterrupt:
                    self._console.print()
                    return False

        with answering(attached.spark, None if chosen is None else answer) as session:
            run_part(session, part, expanded.text, None, lambda frame: found.append(read_rows(frame)))
        return found[0] if found else None

    def _show(self, rows: Rows, statement: str, layout: Layout) -> None:
        """Prints a result to the file that ``\\o`` has set. If there is no such file, prints the result to the
        terminal. A long result is shown through the pager."""
        if not rows.columns:
            return
        definition = definition_of(statement, rows) if layout != "records" else None
        is_plan = is_explain(statement)
        console = console_for(self._out) if self._out is not None else self._console
        left_out = ""
        if layout == "auto" and rows.columns == JOBS and not fits(rows, console.width):
            rows, left_out = jobs_in_short(rows)
        if definition is not None:
            # The definition is printed without additional line breaks. If the terminal wraps a long line, the user can
            # still copy the definition unchanged.
            console.print(Text(definition), soft_wrap=True)
            return
        if self._out is not None or not self._is_paged or not console.is_terminal or console.is_dumb_terminal:
            print_rows(console, rows, layout=layout, is_plan=is_plan)
            console.print(Text(left_out), end="")
            if self._out is not None:
                self._out.flush()
            return
        console.begin_capture()
        try:
            print_rows(console, rows, layout=layout, is_plan=is_plan)
            console.print(Text(left_out), end="")
        finally:
            text = console.end_capture()
        show_paged(text, is_long=text.count("\n") >= console.height)

    def _say(self, text: str) -> None:
        (console_for(self._out) if self._out is not None else self._console).print(Text(text), soft_wrap=True)

    def _command(self, piece: Piece) -> None:
        name, argument = piece.name, piece.text
        statement = listing(name, argument)
        if statement is not None:
            self._list(statement)
            return
        match name:
            case "d":
                self._describe(argument, with_definition=piece.has_plus)
            case "q":
                self._is_over = True
            case "?":
                self.help()
            case "h":
                self._statement_help(argument)
            case "g" | "gx":
                self._run_timed(self._last, "records" if name == "gx" else None)
            case "watch":
                self._watch(argument)
            case "x":
                self._set_layout(argument)
            case "timing":
                self._is_timed = switched(argument, self._is_timed, r"\timing on")
                self._say(f"Timing is {'on' if self._is_timed else 'off'}.")
            case "pager":
                self._is_paged = switched(argument, self._is_paged, r"\pager on")
                self._say(f"The pager is {'on' if self._is_paged else 'off'}.")
            case "e":
                self.edited = edited(self._last.strip(), argument or None)
            case "o":
                self._write_to(argument)
            case "c":
                self._go_to(argument)
            case "!":
                run_command(argument)
            case _:
                raise unknown(name)

    def _list(self, text: str) -> None:
        """Runs a statement as an rw_sql statement, even if the statement, such as SHOW TABLES, is also valid in
        Spark."""
        from rw_sql.session.results import read_rows, rows_of

        with self._status.running():
            statement = parse_statement(text)
            table = self.backend.answer(statement, text)
            rows = rows_of(table) if table is not None else read_rows(self.backend.attached().run(text, statement))
        self._show(rows, text, self._layout)

    def _describe(self, name: str, *, with_definition: bool) -> None:
        from rw_sql.session.results import Rows

        with self._status.running():
            snapshot = self.backend.snapshot()
        if not name:
            objects = () if snapshot is None else tuple(listed(snapshot))
            self._show(Rows(columns=("name", "kind"), rows=objects), "", self._layout)
            return
        kinds = dict(() if snapshot is None else listed(snapshot))
        # The text may be a name that needs quotes, but was typed without quotes.
        wanted = next((each for each in (_name_in(name), name) if each in kinds), None)
        if wanted is None:
            self._run_statements(f"DESCRIBE {name}", self._layout)
            return
        kind, name = kinds[wanted], sql_name(wanted)
        if kind not in ("sink", "connection", "secret"):
            self._list(f"DESCRIBE {name}")
            if not with_definition:
                return
        self._list(f"SHOW CREATE {_CREATED.get(kind, kind.upper())} {name}")

    def _set_layout(self, argument: str) -> None:
        if argument.lower() == "auto":
            self._layout = "auto"
        else:
            self._layout = "records" if switched(argument, self._layout == "records", r"\x auto") else "table"
        said = {"auto": "used for results that are too wide or tall", "records": "on", "table": "off"}[self._layout]
        self._say(f"Expanded display is {said}.")

    def _watch(self, argument: str) -> None:
        try:
            seconds = float(argument) if argument else _WATCH_SECONDS
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= _MOST_WATCH_SECONDS:
            raise SqlError(
                INVALID_COMMAND,
                f'"{argument}" is not a number of seconds between 0 and {_MOST_WATCH_SECONDS:g}',
                hint=r"\watch 2",
            )
        if not self._last.strip():
            raise SqlError(INVALID_COMMAND, "there is no statement to run again", hint=r"SHOW JOBS \watch 2")
        was_paged, self._is_paged = self._is_paged, False
        try:
            while True:
                self._say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} (every {seconds:g} s)")
                try:
                    self._run_statements(self._last, self._layout)
                except SqlError as error:
                    if error.kind not in _PASSING:
                        raise
                    print_error(error.render())
                time.sleep(seconds)
        except KeyboardInterrupt:
            self._say("")
        finally:
            self._is_paged = was_paged

    def _write_to(self, path: str) -> None:
        if self._out is not None:
            self._out.close()
            self._out = None
        if not path:
            return
        try:
            self._out = open(path, "w", encoding="utf-8")  # noqa: SIM115 - until the next \o
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise SqlError(FILE_UNREADABLE, f'cannot write file "{path}": {reason}', hint=r"\o another_file") from error

    def _go_to(self, warehouse: str) -> None:
        if warehouse:
            if self.backend.block_state is not None:
                raise SqlError(
                    INVALID_COMMAND,
                    "the shell cannot switch to another warehouse in a BEGIN UNSAFE block",
                    hint="COMMIT; or ROLLBACK;",
                )
            with self._status.running():
                self.backend.go_to(warehouse)
        self._say(f"This is warehouse {self.backend.location}.")

    def _statement_help(self, wanted: str) -> None:
        from rw_sql.syntax.reference import chapters

        words = wanted.lower().split()
        rules = [rule for chapter in chapters() for rule in chapter.rules if rule.example[:1].isupper()]
        found = [rule for rule in rules if words and rule.name.split("_")[: len(words)] == words]
        if words and not found:
            raise SqlError(UNDEFINED_OBJECT, f'there is no help on "{wanted}"', hint=r"\h lists all statements")
        if not words:
            self._say("\n".join(sorted(rule.name.replace("_", " ").upper() for rule in rules if "_" in rule.name)))
        for rule in found:
            self._say(f"{rule.example};\n\n{rule.text}\n")

    def help(self) -> None:
        """Prints the list of commands."""
        self._console.print(Text(_HELP))
        width = max(len(usage) for usage, _ in HELP)
        for usage, meaning in HELP:
            self._say(f"{usage.ljust(width)}  {meaning}")

    def close(self) -> None:
        """Closes the file of ``\\o``."""
        self._write_to("")


def _name_in(text: str) -> str | None:
    """The catalog's form of a name that a user typed; None if the text is not a name."""
    try:
        tokens = [token for token in scan(text) if token.text]
    except SqlError:
        return None
    if not tokens or any(token.text != "." for token in tokens[1::2]) or len(tokens) % 2 == 0:
        return None
    return Name(parts=tuple(token.value for token in tokens[::2])).key


def _with_next(pieces: Sequence[Piece]) -> list[tuple[Piece, Piece | None]]:
    return list(zip(pieces, [*pieces[1:], None], strict=False))


def _duration(seconds: float) -> str:
    """Returns a statement's duration as text, such as ``306 ms`` or ``82602 ms (1 min 23 s)``."""
    said = f"{seconds * 1000:.0f} ms"
    return said if seconds < _LONG_SECONDS else f"{said} ({elapsed(seconds)})"


def run_shell(*, warehouse: str | None, commands: Sequence[str] = (), files: Sequence[str] = ()) -> int:
    """Runs ``commands`` and ``files``.

    If there are neither commands nor files, runs the text that is typed at a terminal or read from a pipe. Returns an
    exit status.
    """
    with beside_prompt():
        return _run_shell(Backend(warehouse), commands, files)


def _run_shell(backend: Backend, commands: Sequence[str], files: Sequence[str]) -> int:
    is_interactive = not commands and not files and sys.stdin.isatty()
    shell = Shell(backend, is_interactive=is_interactive)
    try:
        if is_interactive:
            _read_and_run(shell, backend)
            return DONE
        texts = [*commands, *(f"\\i {_quoted(path)}" if path != "-" else read_text("-") for path in files)]
        for text in texts or _piped():
            status = shell.run(text)
            if status != DONE:
                return status
            if shell.is_over:
                break
        if backend.block_state is not None:
            print_error(open_block(None).render())
            return FAILED
        return DONE
    finally:
        shell.close()
        backend.close()


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "''") + "'"


def _piped() -> list[str]:
    return [read_text("-")]


def _read_and_run(shell: Shell, backend: Backend) -> None:
    from rw_sql.cli.shell.backend import CatalogNames
    from rw_sql.cli.shell.completion import StatementCompleter
    from rw_sql.cli.shell.prompt import history_file, make_prompt, prompt_for

    console_for().print(Text("rw_sql: statements end in ;   help shows more, exit leaves."))
    console_for().print(Text(f"warehouse {backend.location}", style="dim"), soft_wrap=True)
    prompt: PromptSession[str] = make_prompt(
        StatementCompleter(CatalogNames(backend)), history_file(), starting=lambda: backend.phase
    )
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A program that a script starts in the background ignores Ctrl-C. All programs that such a program starts
        # ignore Ctrl-C too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    backend.start()
    while True:
        # Ctrl-C clears the line. An extra Ctrl-C between two statements does not end the shell either.
        try:
            if shell.is_over:
                return
            default, shell.edited = shell.edited, ""
            text = prompt_for(
                prompt, prompt_of(backend.block_state), default=default, is_starting=backend.is_starting
            ).strip()
            match text.rstrip(";").strip().lower():
                case "":
                    continue
                case "exit" | "quit":
                    return
                case "help":
                    shell.help()
                case _:
                    shell.run(text)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def prompt_of(block: str | None) -> str:
    """The prompt, with psql's mark for an open or aborted block."""
    return {None: "rw_sql> ", "open": "rw_sql*> ", "aborted": "rw_sql!> "}[block]


_HELP = """\
SHOW SOURCES;  SHOW MATERIALIZED VIEWS;  SHOW JOBS;        lists objects and the state of jobs
CREATE SOURCE s (...) WITH (...) FORMAT ... ENCODE ...;     creates a source
PAUSE SOURCE s;  RESUME SOURCE s;                           pauses and resumes a source
EXPLAIN <statement>;                                        shows what a statement would do
Anything else is Spark SQL. Tab completes, Alt-Enter runs, Ctrl-C clears the line or cancels the running
statement, Ctrl-D or exit quits.
"""
