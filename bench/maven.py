"""Downloads the jars of peers that are Java programs, by their Maven coordinates, with Spark's resolver."""

from __future__ import annotations

from pathlib import Path

from bench.harness import NotRunError

_TOLD = 400


def fetched_jars(*coordinates: str, is_transitive: bool = True) -> list[Path]:
    """The jars of ``group:artifact:version`` coordinates, by default with everything that they depend on.

    Raises NotRunError, with the resolver's reason, if a jar cannot be fetched.
    """
    from py4j.protocol import Py4JError
    from pyspark.java_gateway import launch_gateway

    from rw_sql.runtime.spark.jar_cache import remember_jars, remembered_jars

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
            raise NotRunError(f"{name} cannot be fetched: {str(error)[:_TOLD]}") from error
        finally:
            gateway.shutdown()
            gateway.proc.stdin.close()
        remember_jars(name, known)
    return [Path(jar.removeprefix("file://").removeprefix("file:")) for jar in known]
