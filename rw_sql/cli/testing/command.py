"""The command line of ``rw-sql test``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from rw_sql.cli.interface.exit_codes import DONE, FAILED, UNUSABLE
from rw_sql.cli.interface.options import Env, Variables, output_option, require_output
from rw_sql.cli.text_input import as_before, read_exactly, write_text
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.cli.testing.outcome import TestOutcome
    from rw_sql.cli.testing.report import TestReport

OUTPUTS = ("text", "json", "junit")


def run_test_command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATHS",
            help="Test files (*.slt, *.test.yaml, *.sqltest) or folders that contain them. FILE::NAME selects "
            "unit tests of a file by name; NAME may contain * and ?.",
        ),
    ],
    workers: Annotated[
        int,
        typer.Option(
            "--jobs",
            "-j",
            metavar="N",
            min=1,
            help="The number of tests that run in parallel. They share one Spark application.",
        ),
    ] = 1,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Start a Kafka broker for the tests; the first start downloads Kafka.")
    ] = False,
    variables: Variables = None,
    env: Env = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="LABEL", help="A label for skipif and onlyif in .slt files.")
    ] = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop after the first failure.")] = False,
    override: Annotated[
        bool, typer.Option("--override", help="Replace the expected rows in .slt files with the actual rows.")
    ] = False,
    output: Annotated[
        str, output_option(*OUTPUTS, help="The output format. json and junit are written after the last test.")
    ] = "text",
) -> None:
    """Run tests of pipelines, each on a temporary warehouse.

    The exit status is 0 if all tests passed, 1 if a test failed, and 2 if no test was run because the command line, a
    path or a file is wrong.
    """
    from rw_sql.cli.interface.error_report import report_error
    from rw_sql.cli.script.loading import read_assignments
    from rw_sql.cli.terminal.output import console_for, print_error
    from rw_sql.cli.testing.outcome import WrongTestError
    from rw_sql.cli.testing.report import TestReport, print_outcome
    from rw_sql.cli.testing.runner import TestOptions, collect, run_tests

    require_output(output, OUTPUTS)
    try:
        known = read_assignments(variables or ())
        collected = collect(paths, known, env)
        unusable: Sequence[WrongTestError] = collected.wrong
    except SqlError as error:
        report_error(error)
        raise typer.Exit(UNUSABLE) from None
    except WrongTestError as error:
        unusable = (error,)
    if unusable:
        for wrong in unusable:
            print_error(str(wrong))
        _write_report(TestReport(outcomes=[wrong.outcome for wrong in unusable], seconds=0.0), output)
        raise typer.Exit(UNUSABLE)
    hide = collected.hide.values
    console = console_for() if output == "text" else console_for(sys.stderr)

    def tell(outcome: TestOutcome) -> None:
        if outcome.rewritten is not None:
            write_text(outcome.file, as_before(outcome.rewritten, read_exactly(outcome.file)))
        print_outcome(console, outcome, hide)

    options = TestOptions(
        workers=workers,
        has_broker=kafka,
        labels=frozenset(label or ()),
        variables=known,
        env=env,
        is_recording=override,
        stops_at_first=fail_fast,
    )
    started = time.monotonic()
    outcomes = run_tests(collected.tests, options, tell)
    report = TestReport(outcomes=outcomes, seconds=time.monotonic() - started, hide=hide)
    _write_report(report, output)
    console.print(report.summary)
    raise typer.Exit(FAILED if report.has_failures else DONE)


def _write_report(report: TestReport, output: str) -> None:
    """Writes the document of ``--output json`` or ``junit`` to standard output."""
    if output != "text":
        sys.stdout.write(report.as_json() + "\n" if output == "json" else report.as_junit())
