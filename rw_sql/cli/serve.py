"""``rw-sql serve``: a process that owns a warehouse and runs its jobs."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from rich.text import Text

from rw_sql.cli.output import console_for


def serve_until_told(*, warehouse: str | None) -> None:
    """Attaches to a warehouse, runs its jobs until SIGTERM or SIGINT, then stops them and gives the lease back.

    Where another process owns the warehouse this one stands by and takes over when the other is gone.
    """
    told = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        told.set()

    # Before Spark starts: a signal that comes while it does is obeyed as soon as it has.
    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)

    from rw_sql.session import attach, connect, detach

    console = console_for()
    spark = connect(warehouse)
    try:
        attached = attach(spark, warehouse)
        console.print(Text(f"serving {attached.warehouse}; SIGTERM or Ctrl-C stops"))
        if not attached.is_owner:
            console.print(Text("another process runs its jobs now; this one takes over when that one is gone"))
        told.wait()
        console.print(Text("stopping"))
    finally:
        detach(spark)
        spark.stop()
