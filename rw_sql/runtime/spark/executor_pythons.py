"""Evaluates the reports of executors about their Python and its packages. Composes the stall reasons of jobs whose
executors lack a usable Python or a package."""

from __future__ import annotations

import re
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rw_sql.errors import first_names
from rw_sql.packages import EXTRAS
from rw_sql.runtime.spark.executor_task import OWN_DISTRIBUTION, OWN_PACKAGE
from rw_sql.runtime.spark.jvm import output_of_executors
from rw_sql.runtime.spark.shared_folder import MOST_NAMED
from rw_sql.runtime.support.background import prepare
from rw_sql.runtime.support.failures import cause_line
from rw_sql.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark import SparkContext

LIBRARIES = "LIBRARIES"
"""The first word of the stall reason of a job that does not start because an executor has no usable Python, or lacks a
package that the job's reader needs."""

_ASK_SECONDS = 60.0
_SCRIPT = (
    'cat > /dev/null; out=$("$0" -c \'import sys; print("%d.%d" % sys.version_info[:2])\' 2>&1); code=$?; '
    'sleep 0.3; printf "%s\\t%s\\t%s\\t%s\\n" "$(uname -n)" "$PWD" "$code" "$(printf %s "$out" | tail -n 1)"'
)
"""A shell script that runs the interpreter ``$0``, and prints the host, the working folder, the interpreter's exit
status, and the interpreter's version or error."""

_PLACE = re.compile(r"\((\S+) executor \S+\)")
_NOT_NAMED_SO = {
    "google.protobuf": "protobuf",
    "nats": "nats-py",
    "psycopg": "psycopg[binary]",
    "pulsar": "pulsar-client",
}
_WITH_EXTRA = ("boto3", "confluent_kafka", "nats", "pulsar", "pyiceberg")


@dataclass(frozen=True, slots=True)
class Answer:
    """The report of one executor about its folder, files and packages (see
    :func:`rw_sql.runtime.spark.executor_task.answer`). ``process`` identifies the executor's process."""

    host: str
    process: tuple[int, str]
    name: str = ""
    python: str = ""
    executable: str = ""
    unshared: str = ""
    unwritten: str = ""
    missing: tuple[str, ...] = ()
    version: str = ""

    @property
    def is_prepared(self) -> bool:
        """True if the executor has reported no problem."""
        return not (self.unshared or self.unwritten or self.missing or self.version)

    @property
    def place(self) -> str:
        """The name of the executor in messages."""
        return _place(self.host, self.process[1])


def missing_packages(answers: Sequence[Answer], version: str) -> str:
    """The stall reason if these executors lack packages, or have a version of rw_sql other than ``version``."""
    names = list(dict.fromkeys(name for answer in answers for name in (*answer.missing, *_own(answer))))
    said = first_names(
        [f"{answer.place} (Python {answer.python}) {_lacks(answer, version)}" for answer in answers], MOST_NAMED
    )
    executables = list(dict.fromkeys(answer.executable for answer in answers))
    python = executables[0] if len(executables) == 1 else "python3"
    return (
        f"{LIBRARIES} {', '.join(names)}: {said}. On every host, run {python} -m pip install {_requirements(names)}; "
        "the job then continues. Or set PYSPARK_PYTHON to an interpreter that has these packages on every host, before "
        "Spark starts"
    )


def unusable_pythons(context: SparkContext, error: str) -> str:
    """The stall reason if executors cannot run Python tasks. ``error`` is the error of a failed Python task; it is
    empty if no such task has failed. The result is empty if ``error`` is empty and no executor reports an unusable
    Python."""
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    python = str(context.pythonExec)
    found = [
        f"{_place(host, folder)} " + (f"has Python {said}" if code == "0" else f"cannot run {python} ({said})")
        for host, folder, code, said in _interpreters(context, python)
        if code != "0" or said != mine
    ]
    if not found and not error:
        return ""
    if not found:
        hosts = list(dict.fromkeys(_PLACE.findall(error)))
        where = f" on host {first_names(hosts, MOST_NAMED)}" if hosts else ""
        found = [f"Spark's Python processes fail{where}: {cause_line(error)}"]
    return (
        f"{LIBRARIES} Python {mine}: executors need this version of Python, as the driver on host "
        f"{socket.gethostname()} has: {first_names(found, MOST_NAMED)}. Install Python {mine} as {python} on every "
        f"host; the job then continues. Or set PYSPARK_PYTHON to a Python {mine} that every host has, before Spark "
        "starts"
    )


def _interpreters(context: SparkContext, python: str) -> list[tuple[str, str, str, str]]:
    """Returns, for each executor that responds, the executor's host and folder, the exit status of its interpreter, and
    the interpreter's version or error. Spark runs a shell command to find these values, because an executor may have no
    usable Python."""
    try:
        tasks = 2 * max(context.defaultParallelism, 1)
        asking = prepare(lambda: output_of_executors(context, ["sh", "-c", _SCRIPT, python], tasks), "pythons")
        lines = asking.result(_ASK_SECONDS)
    except (PySparkException, Py4JError, TimeoutError):
        return []
    told = dict.fromkeys(tuple(line.split("\t", 3)) for line in lines)
    return [(host, folder, code, said) for host, folder, code, said in (each for each in told if len(each) == 4)]


def _place(host: str, folder: str) -> str:
    return f"the executor on host {host} in {folder}"


def _own(answer: Answer) -> tuple[str, ...]:
    return (OWN_PACKAGE,) if answer.version else ()


def _lacks(answer: Answer, version: str) -> str:
    lacks = [f"lacks {', '.join(answer.missing)}"] if answer.missing else []
    other = [f"has rw_sql {answer.version}, and the driver has {version}"] if answer.version else []
    return " and ".join(lacks + other)


def _requirements(names: Iterable[str]) -> str:
    """The words after ``pip install`` that install these packages."""
    given = list(names)
    extras = [EXTRAS[name] for name in given if name in _WITH_EXTRA]
    others = [_NOT_NAMED_SO.get(name, name) for name in given if name not in _WITH_EXTRA and name != OWN_PACKAGE]
    own = f"{OWN_DISTRIBUTION}[{','.join(extras)}]" if extras else OWN_DISTRIBUTION
    wanted = [f"{own}=={__version__}"] if extras or OWN_PACKAGE in given else []
    return " ".join(f"'{each}'" if "[" in each else each for each in (*wanted, *others))
