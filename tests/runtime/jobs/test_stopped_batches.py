"""The error of a batch while its query is being stopped, and the batches that prove a run."""

from __future__ import annotations

import contextlib
import re
import traceback
from typing import Any

import pytest

from rw_sql.runtime.jobs.streaming_run import BrokenOffError, StreamingRun

# The pattern of Spark 4.2, StreamExecution.PROXY_ERROR, by which Spark recognizes an interrupted Python batch.
_PROXY_ERROR = (
    r"py4j.protocol.Py4JJavaError: An error occurred while calling((.|\r\n|\r|\n)*)"
    r"(java.lang.InterruptedException|java.io.InterruptedIOException|java.nio.channels.ClosedByInterruptException)"
)


def _die(*_: Any) -> None:
    raise ValueError("x" * 100_000)


def test_a_batch_that_dies_of_a_stop_says_only_what_spark_takes_for_an_interruption() -> None:
    streaming = StreamingRun("mv-1")
    write = streaming.guarded(_die)
    streaming.expect_stop()
    with pytest.raises(BrokenOffError) as died:
        write(None, 0)
    said = "".join(traceback.format_exception(died.value))
    assert re.search(_PROXY_ERROR, said)
    # On 4,000 characters the pattern's recursion overflows a JVM thread's stack.
    assert len(said) < 1000


def test_what_a_batch_dies_of_before_is_reported_as_it_is() -> None:
    with pytest.raises(ValueError, match="x"):
        StreamingRun("mv-1").guarded(_die)(None, 0)


def test_a_batch_that_ends_well_while_its_query_is_stopped_has_ended_well() -> None:
    streaming = StreamingRun("mv-1")
    streaming.expect_stop()
    streaming.guarded(lambda frame, batch: None)(None, 0)


def test_a_batch_that_ended_well_proves_a_run() -> None:
    streaming = StreamingRun("mv-1")
    found = [streaming.is_unproven]
    with contextlib.suppress(OSError), streaming.batch():
        found.append(streaming.is_unproven)
        raise OSError
    for _ in range(2):
        with streaming.batch():
            found.append(streaming.is_unproven)
    assert found == [False, True, True, False]
