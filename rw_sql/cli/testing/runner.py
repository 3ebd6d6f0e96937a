"""Finds tests and runs each test on an empty warehouse with its own session. All tests use the same Spark."""

from __future__ import annotations

import fnmatch
import shutil
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rw_sql.cli.script.environments import environment_above
from rw_sql.cli.script.loading import hiding, hiding_all, hiding_of
from rw_sql.cli.sql_files import files_below
from rw_sql.cli.testing.definitions import read_definitions
from rw_sql.cli.testing.outcome import MismatchError, NothingToRunError, TestOutcome, WrongTestError
from rw_sql.cli.testing.slt_file import read_records, rewritten, topics_of
from rw_sql.cli.testing.unit_file import SQL_END, YAML_ENDS, read_unit_file
from rw_sql.errors import SqlError
from rw_sql.masking import masked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from pyspark.sql import SparkSession

    from rw_sql.cli.script.loading import SecretHider
    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from rw_sql.cli.testing.definitions import Defined
    from rw_sql.cli.testing.slt_file import SltRecord
    from rw_sql.cli.testing.unit_file import UnitTest
    from rw_sql.session.attach import Attached

_SLT_END = ".slt"
ENDS = (_SLT_END, *YAML_ENDS, SQL_END)

TEST_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.pollingDelay": "100ms",
    # Spark computes rows without generated code, because generating and compiling code would cost more than everything
    # else for a few rows.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    # Without adaptive execution, all stages of a query form one job. With adaptive execution, each stage would be a
    # separate job.
    "spark.sql.adaptive.enabled": "false",
    # A JVM that runs for a minute spends half of its CPU time on compiling. The tests use only the quick compiler,
    # which suffices for few rows. The settings also reserve enough space for compiled code, classes and young objects
    # from the start.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC "
    "-Xmn256m -XX:MetaspaceSize=256m -Djdk.lang.Process.launchMechanism=VFORK",
}
"""The Spark settings for tests. Tests take a short time and have few rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SltTest:
    """One ``.slt`` file."""

    file: str
    text: str
    records: tuple[SltRecord, ...]

    @property
    def id(self) -> str:
        """The id that selects this test on the command line."""
        return self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewTest:
    """One unit test and its pipeline."""

    test: UnitTest
    definitions: Mapping[str, Defined]
    with_subfolders: str = ""

    @property
    def id(self) -> str:
        """The id that selects this test on the command line."""
        return f"{self.test.file}::{self.test.name}"


Test = SltTest | ViewTest


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOptions:
    """The options for running tests. ``labels`` are the labels for skipif and onlyif. If ``is_recording`` is true, the
    actual rows replace the expected rows in ``.slt`` files. If ``stops_at_first`` is true, no test begins after the
    first failure."""

    __test__ = False

    workers: int = 1
    has_broker: bool = False
    labels: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)
    env: str | None = None
    is_recording: bool = False
    stops_at_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The tests that were found, and the errors of invalid files. ``hide`` hides the values of variables whose names
    suggest that the values are secret. It covers the variables of the command line, of the tests' files, of their
    definitions and of their environments."""

    tests: tuple[Test, ...]
    wrong: tuple[WrongTestError, ...]
    hide: SecretHider


def collect(paths: Sequence[str], variables: Mapping[str, str], env: str | None = None) -> Collected:
    """Collects the tests of files and folders.

    A path ``file::name`` selects the unit tests of a file by name. The name may contain the wildcards ``*`` and ``?``.

    Raises WrongTestError for a path that does not exist or contains no test.
    """
    tests: dict[str, Test] = {}
    wrong: list[WrongTestError] = []
    hiders = [hiding_of(variables)]
    for given in paths:
        path, _, pattern = given.partition("::")
        found: list[Test] = []
        faults = len(wrong)
        for file in _files(Path(path)):
            try:
                made, hide = _tests_of(str(file), variables, env)
                found += made
                hiders.append(hide)
            except WrongTestError as error:
                wrong.append(error)
        if pattern:
            found = [test for test in found if isinstance(test, ViewTest) and _is_named(test.test.name, pattern)]
        if not found and len(wrong) == faults:
            raise WrongTestError(f"no test is named {pattern}" if pattern else "no test found", file=path)
        tests.update((test.id, test) for test in found)
    return Collected(tests=tuple(tests.values()), wrong=tuple(wrong), hide=hiding_all(hiders))


def _is_named(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(files_below(path, _is_test))
    if not path.exists():
        raise WrongTestError("there is no such file or folder", file=str(path))
    if not _is_test(path):
        raise WrongTestError(f"a test's file ends in {', '.join(ENDS)}", file=str(path))
    return [path]


def _is_test(path: Path) -> bool:
    return path.name.lower().endswith(ENDS)


def _tests_of(file: str, variables: Mapping[str, str], env: str | None) -> tuple[list[Test], SecretHider]:
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongTestError(f"cannot be read: {error}", file=file) from error
    if file.lower().endswith(_SLT_END):
        hide = hiding([])
        with suppress(SqlError):  # The test itself reports that its environment cannot be read.
            hide = hiding_of(environment_above(file, env))
        return [SltTest(file=file, text=text, records=tuple(read_records(text, file)))], hide
    found = read_unit_file(text, file)
    definitions, hide = read_definitions(found.definition_files(), {**found.variables, **variables}, env)
    tests: list[Test] = [
        ViewTest(test=test, definitions=definitions, with_subfolders=found.with_subfolders) for test in found.tests
    ]
    return tests, hide


class Bench:
    """One Spark application for all tests, and a broker if the options require it. Each test gets its own session,
    database and warehouse."""

    def __init__(self, spark: SparkSession, folder: Path, options: TestOptions, bootstrap: str | None) -> None:
        self._spark = spark
        self._folder = folder
        self._options = options
        self._bootstrap = bootstrap
        self._numbers = count(1)
        self._topics: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    def run_all(self, tests: Sequence[Test], tell: Callable[[TestOutcome], None]) -> list[TestOutcome]:
        """Runs tests in parallel, in as many threads as ``workers`` of the options.

        ``tell`` receives each outcome when the test has ended. The result has the outcomes in the order of the tests.
        """
        with ThreadPoolExecutor(max_workers=self._options.workers, thread_name_prefix="rw_sql-test") as pool:
            running = [pool.submit(self._one, test, tell) for test in tests]
            try:
                return [future.result() for future in running]
            except BaseException:
                self._is_over.set()
                raise

    def _one(self, test: Test, tell: Callable[[TestOutcome], None]) -> TestOutcome:
        if self._is_over.is_set():
            outcome = _outcome(test, "skipped", message="not run: an earlier test failed")
        else:
            outcome = self.run(test)
        if outcome.status in ("failed", "error") and self._options.stops_at_first:
            self._is_over.set()
        with self._lock:
            tell(outcome)
        return outcome

    def run(self, test: Test) -> TestOutcome:
        """Runs one test on an empty warehouse. Raises no error: the outcome contains the error of the test."""
        started = time.monotonic()
        notes: list[str] = []
        recorded: str | None = None
        try:
            with self._session() as (attached, folder):
                if isinstance(test, SltTest):
                    recorded = self._run_slt(test, attached, folder, notes)
                else:
                    self._run_view_test(test, attached, folder)
        except MismatchError as error:
            return _outcome(test, "failed", started, error.message, error.detail, line=error.line, notes=notes)
        except WrongTestError as error:
            return _outcome(test, "error", started, str(error), notes=notes)
        except SqlError as error:
            told = f"{error.code}: {error.message}"
            return _outcome(test, "error", started, told, error.render(), notes=notes)
        except NothingToRunError as error:
            return _outcome(test, "skipped", started, str(error))
        except Exception as error:  # noqa: BLE001 - an error of one test must not end the others and their report
            told = f"{type(error).__name__}: {error}".partition("\n")[0]
            return _outcome(test, "error", started, masked(told), masked(traceback.format_exc()), notes=notes)
        return _outcome(test, "passed", started, notes=notes, recorded=recorded)

    def _run_slt(self, test: SltTest, attached: Attached, folder: Path, notes: list[str]) -> str | None:
        from rw_sql.cli.testing.slt_run import SltRun

        known = environment_above(test.file, self._options.env)
        names = {**known, **self._options.variables, "dir": str(folder), "warehouse": attached.warehouse}
        if self._bootstrap is not None:
            names["bootstrap"] = self._bootstrap
        run = SltRun(
            attached=attached,
            folder=folder,
            file=test.file,
            names=names,
            bootstrap=self._bootstrap,
            is_recording=self._options.is_recording,
            notes=notes,
        )
        counting = [record for record in test.records if record.counts(self._options.labels | {"rw_sql"})]
        if not counting:
            raise NothingToRunError("skipif and onlyif leave no record to run")
        with self._own_topics(topics_of(counting)):
            for record in counting:
                run.run(record)
        if not run.found:
            return None
        text = rewritten(test.text, test.file, list(test.records), run.found)
        return text if text != test.text else None

    def _run_view_test(self, test: ViewTest, attached: Attached, folder: Path) -> None:
        from rw_sql.cli.testing.unit_run import UnitRun

        run = UnitRun(
            attached=attached,
            folder=folder,
            definitions=test.definitions,
            with_subfolders=test.with_subfolders,
            test=test.test,
            topic=f"test_{folder.name}",
            bootstrap=self._bootstrap,
        )
        run.run()

    @contextmanager
    def _session(self) -> Iterator[tuple[Attached, Path]]:
        """A context manager that yields an attached session and a folder for one test. No other test uses the session's
        database, the warehouse or the folder."""
        from rw_sql.session.attach import attach, detach

        number = next(self._numbers)
        folder = self._folder / str(number)
        folder.mkdir()
        database = f"rw_test_{number}"
        session = self._spark.newSession()
        session.sql(f"CREATE DATABASE {database} LOCATION '{folder}/database'")
        session.sql(f"USE {database}")
        try:
            attached = attach(session, str(folder / "warehouse"))
            attached.ask = None
            try:
                yield attached, folder
            finally:
                detach(session)
        finally:
            self._spark.sql(f"DROP DATABASE IF EXISTS {database} CASCADE")
            # Delta would cache every table for an hour, although no later test reads this test's tables.
            from rw_sql.runtime.spark.jvm import java_class

            java_class(self._spark, "org.apache.spark.sql.delta.DeltaLog").clearCache()
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _own_topics(self, topics: frozenset[str]) -> Iterator[None]:
        """A context manager inside which no other test that creates one of these topics runs.

        The topics are deleted after the block. Therefore, they do not exist when the next test begins.
        """
        from rw_sql.cli.servers.kafka_topics import delete_topic, partition_count

        with ExitStack() as held:
            for topic in sorted(topics):
                with self._lock:
                    lock = self._topics.setdefault(topic, threading.Lock())
                held.enter_context(lock)
            try:
                yield
            finally:
                for topic in topics if self._bootstrap is not None else ():
                    if partition_count(self._bootstrap or "", topic) is not None:
                        delete_topic(self._bootstrap or "", topic)


def run_tests(tests: Sequence[Test], options: TestOptions, tell: Callable[[TestOutcome], None]) -> list[TestOutcome]:
    """Starts Spark and, if the options require it, a broker, and runs the tests. Raises SqlError if Spark or the broker
    does not start."""
    from rw_sql.cli.process_cleanup import keep_tidy
    from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
    from rw_sql.cli.spark_start import spark_for
    from rw_sql.session.attach import detach

    keep_tidy()  # Stops the broker when this process ends; otherwise, the broker would outlive this process.
    with ExitStack() as left:
        folder = Path(left.enter_context(TemporaryDirectory(prefix="rw_sql-test-")))
        broker: Future[BrokerInfo] | None = None
        if options.has_broker:
            home = folder / "broker"
            left.callback(stop_broker, home)
            # The broker and Spark start at the same time, because each of them leaves a core idle for seconds.
            starter = left.enter_context(ThreadPoolExecutor(max_workers=1, thread_name_prefix="rw_sql-broker"))
            broker = starter.submit(start_broker, home, port=0)
        # An archive of classes would not make a run of tests faster (decision 61).
        first = str(folder / "first")
        spark = left.enter_context(spark_for(first, run_jobs=False, config=TEST_SETTINGS, uses_archive=False))
        detach(spark)
        bootstrap = broker.result().bootstrap if broker is not None else None
        (folder / "tests").mkdir()
        return Bench(spark, folder / "tests", options, bootstrap).run_all(tests, tell)


def _outcome(
    test: Test,
    status: str,
    started: float | None = None,
    message: str = "",
    detail: str = "",
    *,
    line: int | None = None,
    notes: Sequence[str] = (),
    recorded: str | None = None,
) -> TestOutcome:
    file, name, own = (
        (test.file, "", 1) if isinstance(test, SltTest) else (test.test.file, test.test.name, test.test.line)
    )
    return TestOutcome(
        file=file,
        name=name,
        line=line or own,
        status=status,  # type: ignore[arg-type]  # the callers' words
        seconds=0.0 if started is None else time.monotonic() - started,
        message=message,
        detail=detail,
        notes=tuple(notes),
        rewritten=recorded,
    )
