"""``rw-sql serve``: a process that owns a warehouse and runs its jobs."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

import typer
from rich.text import Text

from rw_sql.cli.output import console_for

_LOOK_SECONDS = 0.5


def serve_until_told(*, warehouse: str | None, metrics: str | None = None) -> None:
    """Attaches to a warehouse, runs its jobs until SIGTERM or SIGINT, then stops them and gives the lease back.

    Where another process owns the warehouse this one stands by and takes over when the other is gone. Ends with status
    1 where it cannot run them any more, because Spark has ended.
    """
    told = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        told.set()

    # Before Spark starts: a signal that comes while it does is obeyed as soon as it has.
    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)

    from rw_sql.session.attach import attach, connect, detach

    console = console_for()
    spark = connect(warehouse)
    signal.signal(signal.SIGINT, on_signal)  # PySpark put its own in this one's place
    attached = attach(spark, warehouse)
    said: bool | None = None
    try:
        if metrics is not None:
            console.print(Text(f"metrics at port {attached.serve_metrics(metrics)}"))
        while not told.is_set() and attached.why_ended is None:
            if attached.is_owner != said:
                said = attached.is_owner
                console.print(Text("serving; SIGTERM or Ctrl-C stops" if said else _STANDING_BY))
            told.wait(_LOOK_SECONDS)
        why = attached.why_ended
        if why is not None:
            console_for(sys.stderr).print(Text(f"{why}: this process cannot run the jobs any more"))
            raise typer.Exit(1)
        console.print(Text("stopping"))
    finally:
        detach(spark)
        if attached.is_alive:
            spark.stop()


_STANDING_BY = "standing by: another process runs the jobs; SIGTERM or Ctrl-C stops"
