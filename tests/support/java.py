"""The settings with which the JVMs of the tests are started."""

from __future__ import annotations

import sys
from pathlib import Path

# A test's JVM runs for a minute or two. The optimizing compiler would take half of the JVM's CPU time, which is more
# than this compiler saves. A worker's JVM, which runs for twenty minutes, gains nothing from this compiler either.
# Without it, the remaining compiler gets only 48 MB for compiled code by default. A worker's JVM fills this space in
# minutes. Afterwards, nothing more is compiled, and all code takes five times as long. The options also reserve space
# for young objects and for classes from the start. Otherwise, these spaces would grow only after garbage collections.
# Before its first statement, every Spark would make five full collections for its classes alone.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xmn256m -XX:MetaspaceSize=256m "
    "-Djdk.lang.Process.launchMechanism=VFORK"
)

CLASSES = str(Path(sys.prefix) / ".spark-classes.jsa")
"""The archive of Spark's classes, which ``tests.support.jars`` has written."""


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
"""The log4j configuration with which Spark writes its whole log to the file ``{file}``."""


def java_options() -> str:
    """The options of a Spark JVM, with the class archive if it exists."""
    # A Spark with other jars on its class path does not use the archive. Without this option, it would report this on
    # standard output.
    archive = f"-XX:SharedArchiveFile={CLASSES} -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
    return f"{JAVA_OPTIONS} {archive}" if Path(CLASSES).exists() else JAVA_OPTIONS
