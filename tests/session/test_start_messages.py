"""The messages of a process that is started without its start-up messages."""

from __future__ import annotations

import subprocess
import sys

LINES = (
    "WARNING: Using incubator modules: jdk.incubator.vector\\n"
    "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties\\n"
    "26/11/26 07:38:28 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address\\n"
    'Setting default log level to \\"WARN\\".\\n'
    ":: resolving dependencies :: org.apache.spark#spark-submit-parent;1.0\\n"
    "\\tfound io.delta#delta-spark_2.13;4.0.0 in central\\n"
    "\\tat org.apache.spark.SparkContext\\n"
    "OpenJDK warning: the heap is small\\n"
    "26/11/26 07:38:28 ERROR SparkContext: no disk\\n"
)

PROGRAM = f"""
import subprocess, sys
from rw_sql.session.start_messages import without_start_messages

failing = sys.argv[1:] == ["failing"]
try:
    with without_start_messages():
        child = subprocess.Popen(["sh", "-c", 'printf %s "$0" >&2; read line; echo later >&2', "{LINES}"],
                                 stdin=subprocess.PIPE)
        if failing:
            child.communicate(b"on")
            raise RuntimeError("it did not start")
    sys.stderr.write("ours\\n")  # One write, which no line of the other thread divides.
    child.communicate(b"on")
finally:
    import threading
    [thread.join(10) for thread in threading.enumerate() if thread.name == "spark-messages"]
"""


def said(*arguments: str) -> list[str]:
    run = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False)
    return run.stderr.splitlines()


def test_what_spark_always_says_is_left_out_and_everything_else_comes_through() -> None:
    assert sorted(said()) == [
        "\tat org.apache.spark.SparkContext",
        "26/11/26 07:38:28 ERROR SparkContext: no disk",
        "OpenJDK warning: the heap is small",
        "later",
        "ours",
    ]


def test_a_start_that_fails_shows_every_line() -> None:
    lines = said("failing")
    assert len([line for line in lines if "WARN" in line or "found" in line or "::" in line]) == 5
    assert "later" in lines
    assert lines[-1] == "RuntimeError: it did not start"
