"""Accesses the private attributes of PySpark that rw_sql uses. Most of them are the JVM's objects behind sessions,
frames and queries.

Only three other modules of ``rw_sql`` read private attributes of PySpark. The class in
:mod:`rw_sql.runtime.spark.frames` *is* a DataFrame. The modules :mod:`rw_sql.connectors.kafka.spark_reader` and
:mod:`rw_sql.connectors.support.records.range_stream` run without ``rw_sql.runtime``. If a release of PySpark renames a
private attribute, only this module and these three modules may have to change. Each access is a call through py4j's
socket, which takes tens of microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_NEWEST_JOBS = 5
"""The number of a tag's latest jobs whose tasks are counted. Older jobs are assumed to have ended."""

_SHORT_NAMES = (
    "ArrowIteratorServer",
    "PythonErrorUtils",
    "PythonForeachBatchHelper",
    "PythonRDD",
    "PythonSQLUtils",
    "PythonUtils",
    "SerDeUtil",
    "SimplePythonFunction",
    "functions",
)
_FULL_NAMES = (
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.expressions.Window",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.streaming.Trigger",
    "org.apache.spark.storage.StorageLevel",
)
_KEPT_NAMES = _SHORT_NAMES + _FULL_NAMES
"""The classes that :func:`keep_classes` caches, because PySpark looks them up again at each use. PySpark uses these
classes in ``sql``, ``createDataFrame``, ``newSession``, ``persist`` and ``foreachBatch``, in its parser of types, and
for each operator and function of a column."""

# The classes are cached by context and name, because py4j itself caches no classes.
_classes: WeakKeyDictionary[SparkContext, dict[str, Any]] = WeakKeyDictionary()


def java_class(spark: SparkSession, name: str) -> Any:
    """The JVM's class with the full name ``name``. The first use of a name in a Spark context takes one call.

    In contrast, ``_jvm.java.lang.Thread`` would take one call for each part of the name. In each of these calls, Java
    looks in every jar for a class whose name consists of the parts so far. For the first part, Java also looks in each
    package that PySpark imports.
    """
    session: Any = spark
    classes = _classes.setdefault(spark.sparkContext, {})
    found = classes.get(name)
    if found is None:
        found = classes[name] = getattr(session._jvm, name)
    return found


def scala_object(spark: SparkSession, name: str) -> Any:
    """The Scala object with the full name ``name``. This function is needed only if a class that has the object's name
    hides the object's methods."""
    return getattr(java_class(spark, f"{name}$"), "MODULE$")


def scala_sequence(spark: SparkSession, *values: Any) -> Any:
    """A Scala ``Seq`` of Java objects."""
    listed = java_class(spark, "java.util.ArrayList")()
    for value in values:
        listed.add(value)
    return java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(listed)


def keep_classes(spark: SparkSession) -> None:
    """Caches the classes that PySpark uses most often. PySpark then finds these classes without a call to the JVM.

    Without the cache, each use of a class costs a call. For a short name, Java also searches every jar for a class with
    the short name, and then each package that PySpark imports. Only the last of about ten searches finds the class.
    """
    from py4j.java_gateway import JavaClass

    session: Any = spark
    view: Any = session._jvm
    for name in _KEPT_NAMES:
        if name not in vars(view):
            found = getattr(view, name)
            if isinstance(found, JavaClass):
                setattr(view, name, found)


def set_default_property(name: str, value: str) -> None:
    """Sets a system property of the driver's JVM, unless the property is set already. Does nothing if this process has
    no Spark context."""
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    if context is not None and context._jvm is not None:
        system = getattr(context._jvm, "java.lang.System")
        if system.getProperty(name) is None:
            system.setProperty(name, value)


def java_session(spark: SparkSession) -> Any:
    """The JVM's ``org.apache.spark.sql.classic.SparkSession`` behind a session."""
    session: Any = spark
    return session._jsparkSession


def java_properties(spark: SparkSession, settings: Mapping[str, str]) -> Any:
    """Returns settings as a ``java.util.Properties`` object, which a session's ``SQLConf`` accepts in a single call."""
    properties = java_class(spark, "java.util.Properties")()
    for key, value in settings.items():
        properties.setProperty(key, value)
    return properties


def session_settings(spark: SparkSession) -> Any:
    """The current settings of a session, as the JVM's ``org.apache.spark.sql.internal.SQLConf``."""
    return java_session(spark).sessionState().conf()


def java_context(context: SparkContext) -> Any:
    """The JVM's ``org.apache.spark.SparkContext`` behind a context."""
    python: Any = context
    return python._jsc.sc()


def output_of_executors(context: SparkContext, command: list[str], tasks: int) -> list[str]:
    """Runs a command in each of ``tasks`` tasks, without Python, and returns the lines that the commands print. The
    standard input of each command is the number of its task."""
    python: Any = context
    return list(python._jsc.parallelize(list(range(tasks)), tasks).pipe(command).collect())


def bytes_of_file(context: SparkContext, path: str, tasks: int) -> RDD[bytes]:
    """Returns an RDD with the byte strings of a file, divided among ``tasks`` tasks. In the file, each byte string
    follows its length, which is a number of four bytes.

    PySpark's ``parallelize`` reads a file of this form too, but writes the file itself. The bytes are not sent through
    py4j, because py4j logs its commands at the level DEBUG.
    """
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    python: Any = context
    read = getattr(python._jvm, "org.apache.spark.api.python.PythonRDD").readRDDFromFile
    made: Any = RDD
    rdd: RDD[bytes] = made(read(python._jsc, path, tasks), context, NoOpSerializer())
    return rdd


def collect_within(spark: SparkSession, rdd: RDD[Any], seconds: float) -> None:
    """Computes an RDD, and cancels the computation after ``seconds``. Raises Py4JError if the computation fails or is
    cancelled."""
    made: Any = rdd
    computing = made._jrdd.collectAsync()
    try:
        unit = java_class(spark, "java.util.concurrent.TimeUnit").MILLISECONDS
        computing.get(int(seconds * 1000), unit)
    finally:
        computing.cancel(True)


def hadoop_configuration(spark: SparkSession) -> Any:
    """The ``org.apache.hadoop.conf.Configuration`` that all sessions of the Spark context share."""
    context: Any = spark.sparkContext
    return context._jsc.hadoopConfiguration()


def java_frame(frame: DataFrame) -> Any:
    """The JVM's ``org.apache.spark.sql.classic.Dataset`` behind a frame."""
    python: Any = frame
    return python._jdf


def analyzed_plan(frame: DataFrame) -> Any:
    """The logical plan of a frame, with its names resolved."""
    return java_frame(frame).queryExecution().analyzed()


def optimized_plan(frame: DataFrame) -> Any:
    """The logical plan of a frame after Spark's optimizer."""
    return java_frame(frame).queryExecution().optimizedPlan()


def planned_bytes(frame: DataFrame) -> int:
    """Spark's estimate of the size of a frame's rows. If the rows are already computed and persisted, the result is
    their exact size in memory."""
    return int(str(optimized_plan(frame).stats().sizeInBytes()))


def time_zone_of_texts(spark: SparkSession) -> str:
    """The time zone in which Spark's expressions convert times to text if this thread evaluates them."""
    return str(java_class(spark, "org.apache.spark.sql.internal.SQLConf").get().sessionLocalTimeZone())


def parsed_plan(spark: SparkSession, text: str) -> Any:
    """The unresolved logical plan of a statement. Raises ParseException."""
    return java_session(spark).sessionState().sqlParser().parsePlan(text)


def thrown_by(query: StreamingQuery) -> Any | None:
    """The ``StreamingQueryException`` that ended a query; None if no exception ended the query."""
    python: Any = query
    thrown = python._jsq.exception()
    return thrown.get() if thrown.isDefined() else None


def thread_of(query: StreamingQuery) -> int:
    """The number of the JVM's thread that runs a query."""
    python: Any = query
    return int(python._jsq.streamingQuery().queryExecutionThread().getId())


def serving_thread(context: Any) -> int:
    """The number of the JVM's thread that serves the calls of the calling thread. If the calling thread has no
    connection to the JVM, opens one.

    Unless ``PYSPARK_PIN_THREAD`` is false, each Python thread has its own thread in the JVM.
    """
    return int(getattr(context._jvm, "java.lang.Thread").currentThread().getId())


def cpu_time_of(context: Any, thread: int) -> int:
    """The CPU time in nanoseconds used by a thread of the JVM; -1 if the thread has ended or the JVM does not measure
    CPU time."""
    management = getattr(context._jvm, "java.lang.management.ManagementFactory")
    return int(management.getThreadMXBean().getThreadCpuTime(thread))


def thread_infos(context: Any) -> str:
    """The name, number and state of each thread of the JVM. The result is one text, because a separate call for each
    thread would take too long."""
    bean = getattr(context._jvm, "java.lang.management.ManagementFactory").getThreadMXBean()
    infos = bean.getThreadInfo(bean.getAllThreadIds())
    return str(getattr(context._jvm, "scala.runtime.ScalaRunTime").stringOf(infos))


def save_command(rows: DataFrame, path: str, layout: str, options: dict[str, str]) -> Any:
    """Returns the command with which ``DataFrameWriter.save`` would write the rows to new files in the format
    ``layout``. Does not run the command."""
    spark = rows.sparkSession
    if not spark.version.startswith("4.0."):
        writer: Any = rows.write.format(layout).mode("error").options(**options)
        return writer._jwrite.saveCommand(java_class(spark, "scala.Option").apply(path))
    # The writer of Spark 4.0 has no method that returns the command. The following code makes the command as that
    # writer does.
    settings = java_class(spark, "org.apache.spark.api.python.PythonUtils").toScalaMap({**options, "path": path})
    none = java_class(spark, "scala.Option").empty()
    nothing, rows_of = scala_sequence(spark), java_frame(rows)
    source = java_class(spark, "org.apache.spark.sql.execution.datasources.DataSource")(
        rows_of.sparkSession(), layout, nothing, none, nothing, none, settings, none
    )
    return source.planForWriting(
        java_class(spark, "org.apache.spark.sql.SaveMode").ErrorIfExists, rows_of.logicalPlan()
    )


def is_stopped(context: SparkContext) -> bool:
    """True if ``stop()`` was called on the context. Makes no call to the JVM."""
    python: Any = context
    return python._jsc is None


def gateway_client(context: SparkContext) -> Any:
    """The client that sends py4j's commands to the JVM."""
    python: Any = context
    return python._gateway._gateway_client


def gateway() -> Any | None:
    """py4j's gateway to the JVM that PySpark uses in this process; None before the first session."""
    from pyspark import SparkContext

    return SparkContext._gateway


def gateway_process() -> Any | None:
    """The JVM's process as a ``subprocess.Popen`` if PySpark started it; otherwise None."""
    found = gateway()
    return None if found is None else vars(found).get("proc")


def active_context() -> SparkContext | None:
    """The Spark context of this process; None if there is none."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def forget_gateway() -> None:
    """Makes PySpark start another JVM for the next session."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def set_active_session(spark: SparkSession) -> None:
    """Makes a session PySpark's active session for this thread. Does not change the JVM's active session."""
    type(spark)._activeSession = spark


def task_counts(context: SparkContext, tag: str) -> tuple[int, int]:
    """Returns the number of finished tasks and the number of known tasks in the running jobs with the tag ``tag``."""
    tracker = java_context(context).statusTracker()
    done = known = 0
    for job in sorted(tracker.getJobIdsForTag(tag))[-_NEWEST_JOBS:]:
        info = context.statusTracker().getJobInfo(job)
        if info is None or info.status != "RUNNING":
            continue
        for stage in info.stageIds:
            tasks = context.statusTracker().getStageInfo(stage)
            if tasks is not None:
                done, known = done + tasks.numCompletedTasks, known + tasks.numTasks
    return done, known
