"""Errors that no statement on a healthy warehouse causes, and a fixture for every code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError

from rw_sql import errors
from rw_sql.assets import list_assets, read_asset
from rw_sql.errors import ErrorCode, SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.catalog import parse_catalog
from rw_sql.metastore.records import Operation, ParameterRecord, PutObject
from rw_sql.packages import missing_package
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.control.takeover import take_over
from rw_sql.runtime.remote.remote_executor import RemoteExecutor
from rw_sql.runtime.spark.sessions import not_fetched
from rw_sql.runtime.sql.connect_views import ConnectViews
from rw_sql.session.attach import attach
from rw_sql.session.java import check_java
from rw_sql.session.spark_failure import not_started
from rw_sql.spark_jars import jars_of
from rw_sql.syntax import parse_statement
from tests.conftest import FIXTURES, rendered
from tests.support.waits import LAST_RESORT_SECONDS
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ERRORS = FIXTURES / "errors"
_SHOWN = re.compile(r"^(?:\S+: )?(RW\d{3}): ", re.MULTILINE)
_SHOWN_STATE = re.compile(r"^(?:\S+: )?(RW\d{3}): (?:.*\n)+?SQLSTATE: (\w{5})$", re.MULTILINE)


def set_parameter(name: str) -> Operation:
    change = PutObject(record=ParameterRecord(id=1, name=name, value="true"))
    return Operation(kind="ALTER SYSTEM", statement="…", objects=(name,), changes=(change,))


def test_a_metastore_of_a_newer_version(tmp_path: Path, recorded: Callable[[Path, str], None]) -> None:
    shipped = [(name, read_asset("catalog", name)) for name in list_assets("catalog", ".sql")]
    own, newer = len(shipped), len(shipped) + 1
    later = (f"{newer:04d}_later.sql", "ALTER TABLE rw_catalog.operations ADD COLUMNS (later STRING)")
    Metastore.open(str(tmp_path), catalog=parse_catalog([*shipped, later]))
    with pytest.raises(SqlError) as caught:
        Metastore.open(str(tmp_path))
    text = rendered(caught.value).replace(str(tmp_path), "${warehouse}")
    text = text.replace(f"format {newer}", "format ${newer}").replace(f"up to {own}", "up to ${own}")
    recorded(ERRORS / "metastore_is_newer.txt", text)


def test_a_commit_on_a_catalog_that_has_moved_on(tmp_path: Path, recorded: Callable[[Path, str], None]) -> None:
    metastore = Metastore.open(str(tmp_path))
    old = metastore.snapshot()
    metastore.commit(set_parameter("enable_unsafe_ops"), based_on=old)
    with pytest.raises(SqlError) as caught:
        Metastore.open(str(tmp_path)).commit(set_parameter("enable_unsafe_ops"), based_on=old)
    recorded(ERRORS / "concurrent_change.txt", rendered(caught.value))


def test_no_java(recorded: Callable[[Path, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(SqlError) as caught:
        check_java()
    recorded(ERRORS / "java_missing.txt", rendered(caught.value))


def test_a_spark_that_does_not_start(recorded: Callable[[Path, str], None]) -> None:
    told = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: org.apache.spark."
        "SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY] System memory 104857600 must be at least 471859200.\n"
        "\tat org.apache.spark.memory.UnifiedMemoryManager$.getMaxMemory(UnifiedMemoryManager.scala:462)\n"
    )
    recorded(ERRORS / "spark_start.txt", rendered(not_started(Py4JError(told))))


def test_a_library_that_cannot_be_fetched(recorded: Callable[[Path, str], None]) -> None:
    told = (
        "An error occurred while calling z:org.apache.spark.util.DependencyUtils.resolveMavenDependencies.\n"
        ": java.lang.RuntimeException: [unresolved dependency: org.apache.spark#spark-sql-kafka-0-10_2.13;4.2.0: not "
        "found]\n\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:517)\n"
    )
    error = not_fetched("ivy://org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", told)
    recorded(ERRORS / "library_missing.txt", rendered(error))


def test_a_version_of_spark_that_is_too_new(recorded: Callable[[Path, str], None]) -> None:
    with pytest.raises(SqlError) as caught:
        jars_of("4.3.0")
    recorded(ERRORS / "spark_version.txt", rendered(caught.value))


def test_a_package_that_a_light_installation_lacks(recorded: Callable[[Path, str], None]) -> None:
    missing = ModuleNotFoundError("No module named 'deltalake'", name="deltalake")
    error = missing_package(missing, "rw-sql status", is_full=False)
    assert error is not None
    recorded(ERRORS / "package_missing.txt", rendered(error))


def connect_session(extensions: str) -> Any:
    """A session that is recognized as one of Spark Connect by the module of its class."""
    conf = type("Conf", (), {"get": lambda *_: extensions})()
    catalog = type("Catalog", (), {"currentDatabase": lambda *_: "default"})()
    made = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    made.conf, made.catalog = conf, catalog
    return made


def test_a_server_of_spark_connect_without_delta(recorded: Callable[[Path, str], None], tmp_path: Path) -> None:
    with pytest.raises(SqlError) as caught:
        attach(connect_session(""), str(tmp_path / "warehouse"))
    recorded(ERRORS / "connect_without_delta.txt", rendered(caught.value))
    assert list(tmp_path.iterdir()) == []


def test_a_source_in_a_session_of_spark_connect(recorded: Callable[[Path, str], None], tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    written.commit(*written.source(1, "orders"))
    views = ConnectViews(written.context(), connect_session(""))
    with pytest.raises(SqlError) as caught:
        views.for_spark(written.metastore.snapshot(), "SELECT * FROM orders o JOIN mine m ON o.id = m.id", ("public",))
    recorded(ERRORS / "connect_session.txt", rendered(caught.value))
    text = "SELECT orders.id FROM mine AS orders"
    assert views.for_spark(written.metastore.snapshot(), text, ("public",)) == text


def test_a_statement_without_an_owner(recorded: Callable[[Path, str], None], tmp_path: Path) -> None:
    context = WrittenWarehouse(tmp_path / "warehouse").context()
    with pytest.raises(SqlError) as caught:
        RemoteExecutor(context).run("SHOW SOURCES", parse_statement("SHOW SOURCES"), SessionState())
    recorded(ERRORS / "owner_missing.txt", rendered(caught.value).replace(str(tmp_path), "FOLDER"))


def test_an_owner_that_works_is_not_ended(recorded: Callable[[Path, str], None], tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    written.lease()
    with pytest.raises(SqlError) as caught:
        take_over(written.context(), "default", is_forced=True)
    recorded(ERRORS / "owner_alive.txt", rendered(caught.value).replace(str(os.getpid()), "PID"))


@pytest.mark.long
def test_a_notebook_without_a_session(recorded: Callable[[Path, str], None]) -> None:
    program = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "from rw_sql.errors import SqlError\n"
        "from rw_sql.magics.cell import StatementMagic\n"
        "try:\n"
        "    StatementMagic(InteractiveShell.instance()).run('SHOW SOURCES')\n"
        "except SqlError as error:\n"
        "    print(error.render(), 'SQLSTATE: ' + error.sqlstate, sep='\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=LAST_RESORT_SECONDS
    )
    recorded(ERRORS / "no_session.txt", done.stdout)


def codes() -> dict[str, ErrorCode]:
    """Every code except those of syntax, which have their own fixtures."""
    found = [code for code in vars(errors).values() if isinstance(code, ErrorCode)]
    assert len({code.code for code in found}) == len(found)
    return {code.code: code for code in found if not code.code.startswith("RW1")}


def test_every_code_is_shown_by_a_fixture_and_no_other() -> None:
    shown = {code for path in ERRORS.rglob("*.txt") for code in _SHOWN.findall(path.read_text(encoding="utf-8"))}
    assert {code for code in shown if not code.startswith("RW1")} == set(codes())


def test_every_shown_sqlstate_is_that_of_its_code() -> None:
    known = codes()
    for path in ERRORS.rglob("*.txt"):
        for code, state in _SHOWN_STATE.findall(path.read_text(encoding="utf-8")):
            assert code not in known or known[code].sqlstate == state, path
