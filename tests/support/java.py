"""The settings with which the JVMs of the tests are started."""

from __future__ import annotations

import sys
from pathlib import Path

# A test's JVM lives for a minute or two. The optimizing compiler takes half of its CPU time, which is more than it
# saves; a worker's JVM, which lives for twenty minutes, gains nothing by it either. Alone, the other compiler gets 48
# MB for its code, which a worker's JVM fills in minutes. After that nothing is compiled any more, and all code takes
# five times as long. Room for young objects and for classes from the start, because both otherwise grow by collections:
# every Spark makes five full ones for its classes alone before its first statement.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xmn256m -XX:MetaspaceSize=256m "
    "-Djdk.lang.Process.launchMechanism=VFORK"
)

CLASSES = str(Path(sys.prefix) / ".spark-classes.jsa")
"""Spark's classes as ``tests.support.jars`` kept them."""


DEBUG_LOG4J = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c: %m%n%ex
rootLogger.level = debug
rootLogger.appenderRef.file.ref = file
# What the compiler and the network layer say by the megabyte holds no option.
logger.janino.name = org.apache.spark.sql.catalyst.expressions.codegen
logger.janino.level = info
logger.netty.name = io.netty
logger.netty.level = info
logger.parquet.name = org.apache.parquet
logger.parquet.level = info
"""
"""The log4j configuration of a Spark whose whole log goes to the file ``{file}``."""


def java_options() -> str:
    """The options of a Spark JVM, with the class archive if it exists."""
    # A Spark with other jars on its class path does not use the archive, and would log this to standard output.
    archive = f"-XX:SharedArchiveFile={CLASSES} -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
    return f"{JAVA_OPTIONS} {archive}" if Path(CLASSES).exists() else JAVA_OPTIONS
