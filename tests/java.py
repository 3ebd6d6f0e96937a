"""How the JVMs of the tests are started."""

from __future__ import annotations

import sys
from pathlib import Path

# Most JVMs of the tests live for a minute or two: the optimizing compiler costs them more than it gains, half of their
# CPU time in all. The other compiler alone gets 48 MB for its code, filled in minutes; then nothing is compiled
# any more, and all takes five times as long. Room for young objects and for classes from the start, since both grow by
# collections: every Spark makes five full ones for its classes alone before its first statement.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xmn256m -XX:MetaspaceSize=256m "
    "-Djdk.lang.Process.launchMechanism=VFORK"
)

# The JVM of a worker lives for twenty minutes: a test takes a quarter less there once that compiler is through.
# Of two options the later one counts.
_OPTIMIZED = "-XX:TieredStopAtLevel=4"

CLASSES = str(Path(sys.prefix) / ".spark-classes.jsa")
"""Spark's classes as ``tests.jars`` kept them."""


def java_options(*, lives_long: bool = False) -> str:
    """The options of a Spark JVM, with the kept classes where they are there."""
    options = [JAVA_OPTIONS]
    if lives_long:
        options.append(_OPTIMIZED)
    if Path(CLASSES).exists():
        options.append(f"-XX:SharedArchiveFile={CLASSES}")
    return " ".join(options)
