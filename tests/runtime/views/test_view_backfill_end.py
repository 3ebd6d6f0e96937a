"""A view during its backfill: the reason of a failed batch, and a stop that meets a chunk which is about to begin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from rw_sql.runtime.jobs.streaming_run import StreamingRun
from rw_sql.runtime.support.failures import Failure, StalledError
from rw_sql.runtime.views.job import View


def test_the_reason_of_a_batch_is_not_replaced_by_what_spark_makes_of_it() -> None:
    streaming = StreamingRun("mv-1")
    of_spark = Failure(reason="An exception was raised by the Python Proxy")
    backfill = SimpleNamespace(failure=lambda: of_spark, is_running=False)
    view = cast("Any", SimpleNamespace(streaming=streaming, backfill=backfill))
    assert View.failure(view) == of_spark
    streaming.stall = StalledError("MISCOUNT 3 rows instead of 4", is_final=True)
    assert View.failure(view) == streaming.stall.failure


def test_a_stop_cancels_the_work_of_a_backfill_until_it_has_ended() -> None:
    """A chunk whose Spark job begins right after the first request would otherwise be read to its end."""

    class LateBackfill:
        def __init__(self) -> None:
            self.requests = 0

        @property
        def is_running(self) -> bool:
            return self.requests < 3

        def stop(self) -> None:
            self.requests += 1

        def wait(self, seconds: float) -> None:
            assert seconds < 1

    backfill = LateBackfill()
    View._stop_backfill(cast("Any", SimpleNamespace(streaming=StreamingRun("mv-1"))), cast("Any", backfill))
    assert backfill.requests == 3
