"""Fetches the jars of Maven coordinates, for programs in Java. Spark's resolver fetches each jar only once."""

from __future__ import annotations

from pathlib import Path

from rw_sql.runtime.spark.jar_cache import remember_jars, remembered_jars

_TOLD = 400


class MissingJarsError(Exception):
    """Some jars cannot be fetched. The message contains the resolver's reason."""


def has_jars(*coordinates: str) -> bool:
    """True if :func:`fetched_jars` has fetched exactly these coordinates on this machine."""
    return remembered_jars(",".join(coordinates)) is not None


def fetched_jars(*coordinates: str, is_transitive: bool = True) -> list[Path]:
    """The jars of ``group:artifact:version`` coordinates, by default with everything that they depend on.

    Raises MissingJarsError if a jar cannot be fetched.
    """
    from py4j.protocol import Py4JError
    from pyspark.java_gateway import launch_gateway

    name = ",".join(coordinates) + ("" if is_transitive else "?transitive=false")
    known = remembered_jars(name)
    if known is None:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
        try:
            jvm = gateway.jvm
            found = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(
                is_transitive, None, ",".join(coordinates), None, None, jvm.scala.Option.apply(None)
            )
            known = str(found.mkString("\n")).split("\n")
        except Py4JError as error:
            raise MissingJarsError(f"{name} cannot be fetched: {str(error)[:_TOLD]}") from error
        finally:
            gateway.shutdown()
            gateway.proc.stdin.close()
        remember_jars(name, known)
    return [Path(jar.removeprefix("file://").removeprefix("file:")) for jar in known]
