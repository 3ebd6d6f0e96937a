"""The reason why a job failed, in one line for an operator."""

from __future__ import annotations

import pytest

from rw_sql.runtime.support.failures import cause_line

IN_PYTHON = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/lib/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/lib/ingest.py", line 236, in _on_batch
    raise FencedError(f"{self.spec.job} was stopped")
rw_sql.runtime.delta.job_output.FencedError: another run of mv-1 has taken over from run 3
"""

IN_THE_JVM = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/lib/view.py", line 120, in _on_batch
    self.output.append_frame(frame, batch)
py4j.protocol.Py4JJavaError: An error occurred while calling o301.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:820)
Caused by: java.lang.IllegalStateException: no room
\tat org.example.Writer.write(Writer.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""

FULL = "Generic LocalFileSystem error: Unable to copy data to file: No space left on device (os error 28)"
IN_DELTA = (
    "Generic LocalFileSystem error\n          \x1b[31m↳\x1b[0m Unable to copy data to file\n"
    "           \x1b[31m↳\x1b[0m No space left on device (os error 28)\n"
)

OF_SPARK = """[STREAM_FAILED] Query [id = 3f0c, runId = 77aa] terminated with exception: Topic is gone SQLSTATE: XXKST
=== Streaming Query ===
Identifier: mv-1 [id = 3f0c, runId = 77aa]
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (IN_PYTHON, "FencedError: another run of mv-1 has taken over from run 3"),
        (IN_DELTA, FULL),
        (f"{IN_PYTHON.rpartition('rw_sql.')[0]}OSError: {IN_DELTA}", f"OSError: {FULL}"),
        (IN_THE_JVM, "IOException: No space left on device"),
        (OF_SPARK, "Topic is gone"),
        (
            "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==",
            "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012",
        ),
        ("java.net.ConnectException: Connection refused", "ConnectException: Connection refused"),
        ("offset of topic.a.B is out of range", "offset of topic.a.B is out of range"),
        ("", ""),
    ],
)
def test_the_innermost_cause_in_one_line(text: str, line: str) -> None:
    assert cause_line(text) == line


def test_a_long_line_is_cut_with_a_mark() -> None:
    assert cause_line(f"OSError: {'a' * 1991}") == f"OSError: {'a' * 1991}"
    assert cause_line(f"OSError: {'a' * 1992}") == f"OSError: {'a' * 1990}…"
