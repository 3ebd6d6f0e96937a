"""The preparation of a cluster's executors: private files, packages, Python, and the warehouse's folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from rw_sql.runtime.spark import executor_pythons, executor_task, executors
from rw_sql.runtime.spark.executor_pythons import Answer, missing_packages, unusable_pythons
from rw_sql.runtime.spark.executors import require_executors
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rw_sql.runtime.spark.shared_folder import SharedFolder

S3 = Warehouse.at("s3://bucket/warehouse")
MINE = f"{sys.version_info[0]}.{sys.version_info[1]}"


class Context:
    """Stands in for the SparkContext of a cluster."""

    def __init__(self) -> None:
        self.master = "spark://host:7077"
        self.defaultParallelism = 2
        self.pythonExec = "python3"
        self._jsc = object()  # None after stop()
        self.cancelJobGroup = self.setJobGroup = lambda *_, **__: None


class Cluster:
    """Executors that run their task in this process. ``lacks`` are their missing packages by executor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spark: Any = SimpleNamespace(sparkContext=Context())
        self.ids = ["0", "1"]
        self.lacks: dict[str, tuple[str, ...]] = {}
        self.unwritten: dict[str, str] = {}
        self.silent: set[str] = set()
        self.error: Exception | None = None
        self.asked: list[tuple[tuple[str, ...], dict[str, str]]] = []
        self.files: dict[str, str] = {}
        self.interpreters: list[str] = []
        monkeypatch.setattr(executors, "_executors", lambda _: set(self.ids))
        monkeypatch.setattr(executors, "_look", self.look)
        monkeypatch.setattr(executors, "files_for_executors", lambda: dict(self.files))
        monkeypatch.setattr(executors, "own_version", lambda: __version__)
        monkeypatch.setattr(executor_pythons, "output_of_executors", lambda *_: self.interpreters)

    def look(
        self, _: Any, folder: SharedFolder, packages: tuple[str, ...], files: Mapping[str, str], tasks: int
    ) -> list[Answer]:
        assert not folder.path
        self.asked.append((packages, dict(files)))
        if self.error is not None:
            raise self.error
        return [
            Answer(
                host=f"host-{each}",
                process=(int(each), f"/work/{each}"),
                python=MINE,
                executable="/usr/bin/python3",
                unwritten=self.unwritten.get(each, "") if files else "",
                missing=tuple(name for name in self.lacks.get(each, ()) if name in packages),
            )
            for each in self.ids
            if each not in self.silent
        ]

    def refusal(self, *packages: str, warehouse: Warehouse = S3) -> str:
        try:
            require_executors(warehouse, self.spark, packages)
        except StalledError as error:
            return error.reason
        return ""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_executors_with_everything_are_asked_once(cluster: Cluster) -> None:
    for _ in range(3):
        assert cluster.refusal("rw_sql", "nats") == ""
    assert len(cluster.asked) == 1
    assert cluster.refusal("nats") == ""
    assert len(cluster.asked) == 1
    cluster.ids.append("2")
    assert cluster.refusal("nats") == ""
    assert len(cluster.asked) == 2


def test_nothing_is_asked_for_a_job_that_needs_nothing(cluster: Cluster) -> None:
    assert cluster.refusal() == ""
    cluster.spark.sparkContext.master = "local[4]"
    assert cluster.refusal("nats") == ""
    assert cluster.asked == []


def test_a_missing_package_is_refused_in_words_until_it_is_installed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "_REFUSED_SECONDS", 0.0)
    cluster.lacks = {"1": ("rw_sql", "nats")}
    assert cluster.refusal("rw_sql", "nats", "pyarrow") == (
        f"LIBRARIES rw_sql, nats: the executor on host host-1 in /work/1 (Python {MINE}) lacks rw_sql, nats. "
        f"On every host, run /usr/bin/python3 -m pip install 'rw-sql[nats]=={__version__}'; the job then continues. "
        "Or set PYSPARK_PYTHON to an interpreter that has these packages on every host, before Spark starts"
    )
    # A job that does not need the package runs.
    assert cluster.refusal("pyarrow") == ""
    cluster.lacks = {}
    assert cluster.refusal("rw_sql", "nats", "pyarrow") == ""


def test_a_refusal_is_valid_for_a_moment_and_only_for_jobs_with_the_same_packages(cluster: Cluster) -> None:
    cluster.lacks = {"0": ("numpy",)}
    assert cluster.refusal("numpy").startswith("LIBRARIES numpy: ")
    cluster.lacks = {}
    assert cluster.refusal("numpy").startswith("LIBRARIES numpy: ")
    assert len(cluster.asked) == 1
    assert cluster.refusal("pyarrow") == ""


def test_changed_secrets_and_new_executors_cause_another_task(cluster: Cluster) -> None:
    cluster.files = {"/tmp/f/a": "one"}
    assert cluster.refusal() == cluster.refusal() == ""
    cluster.files["/tmp/f/b"] = "two"
    assert cluster.refusal() == cluster.refusal() == ""
    cluster.ids.append("2")
    assert cluster.refusal() == cluster.refusal() == ""
    both = {"/tmp/f/a": "one", "/tmp/f/b": "two"}
    assert cluster.asked == [((), {"/tmp/f/a": "one"}), ((), both), ((), both)]


def test_files_are_sent_again_after_a_while_because_hosts_delete_old_files(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.files = {"/tmp/f/a": "one"}
    monkeypatch.setattr(executors, "_FRESH_SECONDS", 0.0)
    assert cluster.refusal() == cluster.refusal() == ""
    assert len(cluster.asked) == 2


def test_an_executor_that_cannot_write_the_files_is_refused_without_their_contents(cluster: Cluster) -> None:
    cluster.files = {"/tmp/f/a": "hunter2"}
    cluster.unwritten = {"1": "it cannot write /tmp/f: read-only file system"}
    said = cluster.refusal()
    assert said.startswith("UNSHARED /tmp/f: not every executor can use the files of secrets and certificates")
    assert "the executor on host host-1 in /work/1 (it cannot write /tmp/f: read-only file system)" in said
    assert "Set TMPDIR of the driver to a folder" in said
    assert "hunter2" not in said


def test_the_files_of_refused_executors_are_removed_too(cluster: Cluster) -> None:
    cluster.files = {"/tmp/rw_sql-secrets-held-1/password": "hush"}
    cluster.lacks = {"1": ("nats",)}
    assert cluster.refusal("nats").startswith("LIBRARIES nats")
    assert executors._has_files[cluster.spark.sparkContext] == "/tmp/rw_sql-secrets-held-1"


def test_executors_that_have_not_answered_are_asked_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_PARTLY_SECONDS", 0.0)
    cluster.files = {"/tmp/f/a": "one"}
    cluster.silent = {"1"}
    assert cluster.refusal() == ""
    assert len(cluster.asked) == executors._ROUNDS
    cluster.silent = set()
    assert cluster.refusal() == cluster.refusal() == ""
    assert len(cluster.asked) == executors._ROUNDS + 1


def test_an_executor_whose_tasks_run_elsewhere_because_its_python_fails_is_refused(cluster: Cluster) -> None:
    cluster.silent = {"1"}
    cluster.interpreters = [f"host-0\t/work/0\t0\t{MINE}", "host-1\t/work/1\t127\tsh: 1: python3: not found"] * 2
    said = cluster.refusal("rw_sql")
    assert said.startswith(f"LIBRARIES Python {MINE}: executors need this version of Python, as the driver on host ")
    assert "the executor on host host-1 in /work/1 cannot run python3 (sh: 1: python3: not found). " in said
    assert f"Install Python {MINE} as python3 on every host; the job then continues. Or set PYSPARK_PYTHON" in said
    assert "host-0" not in said


def test_another_version_of_python_is_refused_with_both_versions(cluster: Cluster) -> None:
    from pyspark.errors import PySparkRuntimeError

    cluster.error = PySparkRuntimeError("[PYTHON_VERSION_MISMATCH] …")
    cluster.interpreters = ["host-1\t/work/1\t0\t3.9"]
    assert "the executor on host host-1 in /work/1 has Python 3.9. Install" in cluster.refusal("rw_sql")


def test_python_that_fails_for_another_reason_is_refused_with_the_reason_and_the_host(cluster: Cluster) -> None:
    from py4j.protocol import Py4JError

    cluster.error = Py4JError(
        "Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.2 executor 1): org.apache.spark.SparkException: \n"
        "Caused by: No module named 'pyspark'"
    )
    assert (
        "Spark's Python processes fail on host 10.0.0.2: No module named 'pyspark'. Install Python"
        in cluster.refusal("rw_sql")
    )


def test_executors_without_python_suffice_for_a_job_without_files_and_packages(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from py4j.protocol import Py4JError

    def fail(*given: Any) -> list[Answer]:
        raise Py4JError("Cannot run program")

    monkeypatch.setattr(executors, "_look", fail)
    assert cluster.refusal(warehouse=Warehouse.at(str(tmp_path / "w"))) == ""


@pytest.mark.parametrize(
    ("missing", "wanted"),
    [
        (("rw_sql",), f"rw-sql=={__version__}"),
        (("pyarrow", "psycopg"), "pyarrow 'psycopg[binary]'"),
        (("pyiceberg", "pyarrow"), f"'rw-sql[iceberg]=={__version__}' pyarrow"),
        (("google.protobuf",), "protobuf"),
    ],
)
def test_the_remedy_names_the_distributions_of_packages(missing: tuple[str, ...], wanted: str) -> None:
    answer = Answer("h", (1, "/w"), python="3.12", executable="/opt/py", missing=missing)
    assert f"run /opt/py -m pip install {wanted}; the job" in missing_packages([answer], "1.0")


def test_another_version_of_rw_sql_is_refused() -> None:
    answer = Answer("h", (1, "/w"), python="3.12", executable="/opt/py", version="0.1.0")
    said = missing_packages([answer], "0.2.0")
    assert said.startswith(
        "LIBRARIES rw_sql: the executor on host h in /w (Python 3.12) has rw_sql 0.1.0, and the driver"
    )


def test_no_reason_is_given_if_all_interpreters_are_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_pythons, "output_of_executors", lambda *_: [f"h\t/w\t0\t{MINE}"])
    context: Any = Context()
    assert unusable_pythons(context, "") == ""


def test_the_task_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    executors._send_by_value()
    ask, remove = executor_task.answer, executor_task.remove
    packages = ("json", "no_such.module", "an_empty_folder", "rw_sql")
    given: dict[str, Any] = {
        "folder": str(tmp_path),
        "token": "t",
        "packages": packages,
        "version": "1",
        "seconds": 0.0,
    }
    files = json.dumps({str(tmp_path / "copy" / "a"): "hunter2"}).encode()
    dumped: Any = cloudpickle.dumps
    (tmp_path / "driver").write_text("t", encoding="utf-8")
    (tmp_path / "an_empty_folder").mkdir()
    (tmp_path / "task").write_bytes(
        dumped((lambda: ask(3, [files], **given), lambda: remove(str(tmp_path / "copy"), 0.0)))
    )
    script = """
import pickle, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("rw_sql", "pyarrow", "numpy"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
answer, remove = pickle.load(open("task", "rb"))
told = answer()
assert open("copy/a").read() == "hunter2"
remove()
print(told["name"].startswith("task-3-"), told["unshared"], told["unwritten"], *told["missing"], sep="|")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, env=_environment()
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True|||no_such.module|an_empty_folder|rw_sql\n"
    assert not (tmp_path / "copy").exists()
    # The driver sees what the task wrote.
    assert [path.read_text() for path in tmp_path.glob("task-3-*")] == ["t"]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
