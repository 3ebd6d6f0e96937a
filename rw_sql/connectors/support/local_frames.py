"""Creates DataFrames from rows in this process's memory, and marks DataFrames whose rows are too many for this
memory."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_large: WeakSet[DataFrame] = WeakSet()


def noted_as_large(frame: DataFrame) -> DataFrame:
    """Marks a DataFrame that has far more rows than its number of offsets suggests. Returns the DataFrame."""
    _large.add(frame)
    return frame


def is_large(frame: DataFrame) -> bool:
    """True for a DataFrame that :func:`noted_as_large` has marked. The caller must not collect the rows of a marked
    DataFrame in this process."""
    return frame in _large


class _Active:
    """``in_use`` contains the sessions of all running ``with`` blocks of :func:`keeping_active_session`. ``before``
    is the session that was PySpark's active session before these blocks."""

    lock = threading.Lock()
    in_use: list[Any] = []  # noqa: RUF012 - one list for the whole process, like PySpark's active session
    before: Any = None


@contextmanager
def keeping_active_session(spark: SparkSession) -> Iterator[None]:
    """A context manager that restores PySpark's active session at its end. Jobs must call ``createDataFrame`` inside
    it.

    ``createDataFrame`` makes its session the active session of PySpark, for all threads of the process. Without this
    context manager, ``SparkSession.active()``, pandas on Spark and notebooks would afterwards use the job's session.
    """
    from pyspark.sql import SparkSession as Sessions

    sessions: Any = Sessions
    with _Active.lock:
        if not any(sessions._activeSession is other for other in _Active.in_use):
            _Active.before = sessions._activeSession
        _Active.in_use.append(spark)
    try:
        yield
    finally:
        with _Active.lock:
            _Active.in_use.remove(spark)
            if sessions._activeSession is spark:
                sessions._activeSession = _Active.before
            if not _Active.in_use:
                _Active.before = None


def local_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Returns a DataFrame with the rows of an Arrow table. The executors need no Python to read it, unlike a DataFrame
    that was created from a list of rows.

    PySpark's ``createDataFrame`` drops all batches after an empty batch that is neither the first nor the last
    (observed with Spark 4.0 to 4.2). This function therefore removes empty batches first.
    """
    import pyarrow as pa

    batches = [batch for batch in table.to_batches() if batch.num_rows]
    # For some types, PySpark needs at least one batch.
    batches = batches or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    with keeping_active_session(spark):
        return spark.createDataFrame(pa.Table.from_batches(batches, schema=table.schema))


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """A DataFrame without rows. All of its columns are nullable, like the columns of files. The executors need no
    Python to read the DataFrame."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    nothing = local_frame(spark, pa.schema([("nothing", pa.bool_())]).empty_table())
    columns = (
        f.lit(None).cast(column.dataType).alias(column.name, metadata=column.metadata) for column in schema.fields
    )
    return nothing.select(*columns)
