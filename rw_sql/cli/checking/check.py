"""Implements ``rw-sql check``, which finds errors in SQL files without Spark, Java or network."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from rw_sql.cli.interface.error_report import report_error
from rw_sql.cli.interface.exit_codes import FAILED, UNUSABLE
from rw_sql.cli.interface.options import (
    Env,
    FileToWrite,
    Variables,
    WarehouseOption,
    old_name,
    output_option,
    require_output,
)
from rw_sql.cli.text_input import read_text
from rw_sql.errors import INVALID_OPTION, SqlError
from rw_sql.spark_jars import SUPPORTED, minor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.plan.offline.report import Checked
    from rw_sql.plan.offline.script import ScriptChecker

OUTPUTS = ("text", "json", "github", "sarif", "junit")


def check_script(text: str, file: str, checker: ScriptChecker | None = None) -> Iterator[Checked]:
    """Checks a script, and yields each statement of the script with the statement's errors."""
    from rw_sql.plan.offline.script import ScriptChecker

    checker = checker or ScriptChecker()
    checker.announce(text, file)
    yield from checker.check(text, file)


def run_check(
    paths: Sequence[str],
    *,
    output: str = "text",
    catalog: Snapshot | None = None,
    is_each: bool = False,
    make: Callable[[Snapshot | None], ScriptChecker] | None = None,
    env: str | None = None,
    variables: Sequence[str] = (),
) -> int:
    """Checks files and folders, prints the errors in the output format ``output``, and returns the exit status.

    If ``is_each`` is true, each file or folder is checked on ``catalog`` alone. Otherwise, each file or folder is
    checked on the catalog that results from the preceding files and folders. Raises SqlError for an environment or
    variable that does not exist.
    """
    from rw_sql.cli.checking.check_input import check_group, read_groups
    from rw_sql.cli.reports.check_reports import Report, write_report
    from rw_sql.plan.offline.script import ScriptChecker

    make = make or ScriptChecker
    report = Report()
    groups, report.unreadable = read_groups(paths, env, variables)
    checker = make(catalog)
    if not is_each:
        for file in (file for group in groups for file in group.files):
            checker.announce(file.expanded.text, file.path)
    for group in groups:
        if is_each:
            checker = make(catalog)
            for file in group.files:
                checker.announce(file.expanded.text, file.path)
        for file, statements in check_group(group, checker, has_catalog=catalog is not None):
            report.add(file.path, file.text, statements)
    write_report(report, output)
    if report.unreadable:
        return UNUSABLE
    return FAILED if report.errors else 0


def _catalog(warehouse: str | None, file: str | None) -> Snapshot | None:
    if warehouse is not None and file is not None:
        raise SqlError(
            INVALID_OPTION, "--warehouse and --catalog both name a catalog", hint="omit --warehouse or --catalog"
        )
    if file is not None:
        from rw_sql.metastore import catalog_from_json

        return catalog_from_json(read_text(file), f'"{file}"')
    if warehouse is not None:
        from rw_sql.metastore import Metastore
        from rw_sql.session.location import warehouse_at

        return Metastore.peek(warehouse_at(warehouse).uri)
    return None


def _chosen_minor(version: str | None, *, starts_spark: bool) -> str | None:
    """The minor version of Spark that ``--spark-version`` names. Raises SqlError if rw_sql does not support the
    version, or if ``--spark`` starts another version."""
    if version is None:
        return None
    minor = minor_of(version)
    if minor not in SUPPORTED:
        raise SqlError(
            INVALID_OPTION,
            f"--spark-version takes {', '.join(SUPPORTED[:-1])} or {SUPPORTED[-1]}, not {version!r}",
            hint=f"--spark-version {SUPPORTED[-1]}",
        )
    if starts_spark:
        from rw_sql.plan.queries.analysis.functions import installed_minor

        if (installed := installed_minor()) not in (None, minor):
            raise SqlError(
                INVALID_OPTION,
                f"--spark starts the installed Spark {installed}, so it cannot check queries for Spark {minor}",
                hint=f"omit --spark, or pip install 'pyspark=={minor}.*'",
            )
    return minor


def check_command(
    files: Annotated[
        list[str], typer.Argument(metavar="PATHS|-", help="SQL files, or folders of them; - is standard input.")
    ],
    output: Annotated[
        str,
        output_option(
            *OUTPUTS,
            help="The output format: text, json (one object per statement), github (annotations), sarif (SARIF 2.1.0) "
            "or junit (JUnit XML).",
        ),
    ] = "text",
    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse",
            "-w",
            metavar="PATH",
            help="Check against the catalog of this warehouse, without changing it.",
        ),
    ] = None,
    catalog: Annotated[
        str | None,
        typer.Option("--catalog", metavar="FILE", help="Check against a catalog that rw-sql export-catalog wrote."),
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Check each file separately, without the objects of the files before it.")
    ] = False,
    spark_table: Annotated[
        list[str] | None,
        typer.Option(
            "--spark-table",
            metavar="NAME",
            help="The name of a Spark table that queries may read in addition to rw_sql's objects.",
        ),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Start Spark and let its analyzer check queries too.")] = False,
    spark_version: Annotated[
        str | None,
        typer.Option(
            "--spark-version",
            metavar="VERSION",
            help=f"The version of Spark whose functions queries may call: {', '.join(SUPPORTED[:-1])} or "
            f"{SUPPORTED[-1]}. The default is the version of the installed PySpark or, if it is not installed, "
            f"{SUPPORTED[-1]}.",
        ),
    ] = None,
    env: Env = None,
    variables: Variables = None,
    form: Annotated[str | None, old_name("--format", "--output")] = None,
) -> None:
    """Check the statements of SQL files. Each statement is planned on the catalog that results from the statements
    before it.

    The statements of a folder define objects. These statements are checked in the order of their dependencies, by the
    same rules that rw-sql diff applies. The check needs no Spark, Java or network. The summary lists the facts that
    could not be checked. The exit status is 0 if there are no errors, 1 if there are errors, and 2 if a file or the
    catalog cannot be read.
    """
    output = form or output
    try:
        require_output(output, OUTPUTS)
        minor = _chosen_minor(spark_version, starts_spark=spark)
        snapshot = _catalog(warehouse, catalog)
    except SqlError as error:
        report_error(error)
        raise typer.Exit(UNUSABLE) from None
    with ExitStack() as stack:
        from rw_sql.plan.offline.script import ScriptChecker
        from rw_sql.plan.queries.analysis.functions import functions_of

        if minor is not None:
            stack.enter_context(functions_of(minor))
        ask_spark = None
        if spark:
            from rw_sql.cli.spark_start import query_analyzer

            ask_spark = stack.enter_context(query_analyzer())

        def make(base: Snapshot | None) -> ScriptChecker:
            return ScriptChecker(base, ask_spark=ask_spark, spark_tables=spark_table or ())

        try:
            status = run_check(
                files,
                output=output,
                catalog=snapshot,
                is_each=each,
                make=make,
                env=env,
                variables=variables or (),
            )
        except SqlError as error:
            report_error(error)
            status = UNUSABLE
    raise typer.Exit(status)


def export_catalog_command(
    warehouse: WarehouseOption = None,
    file: FileToWrite = None,
    old_file: Annotated[str | None, old_name("--to", "--file")] = None,
) -> None:
    """Write a warehouse's catalog as JSON for rw-sql check --catalog, without values of secrets. Does not start
    Spark."""
    from pathlib import Path

    from rw_sql.metastore import Metastore, catalog_to_json
    from rw_sql.session.location import warehouse_at

    to = file or old_file or "-"
    try:
        text = catalog_to_json(Metastore.peek(warehouse_at(warehouse).uri))
        if to == "-":
            sys.stdout.write(text)
        else:
            Path(to).write_text(text, encoding="utf-8")
    except SqlError as error:
        report_error(error)
        raise typer.Exit(UNUSABLE) from None
    except OSError as error:
        sys.stderr.write(f'cannot write "{to}": {error.strerror}\n')
        raise typer.Exit(UNUSABLE) from None
