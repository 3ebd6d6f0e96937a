"""Lists the Maven coordinates of the jars that rw_sql adds to Spark, by Spark's minor version.

Some patch releases of Spark have no Kafka connector on Maven Central. Therefore, all patch releases of a minor version
use the jars of one of these releases.
"""

from __future__ import annotations

from dataclasses import dataclass

from rw_sql.errors import SPARK_VERSION, SqlError

_KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"


@dataclass(frozen=True)
class SparkJars:
    """The jars for one minor version of Spark.

    ``delta`` is Delta Lake's coordinate for ``--packages``. ``kafka`` and ``avro`` are ``ivy://`` URIs for ``ADD JAR``.
    ``hadoop`` is the version of Hadoop that Spark contains, and ``aws_sdk`` is the version of the AWS SDK with which
    this Hadoop version was built.
    """

    delta: str
    kafka: tuple[str, ...]
    avro: str
    hadoop: str
    aws_sdk: str


def _jars(minor: str, *, kafka: str, tokens: str, hadoop: str, aws_sdk: str) -> SparkJars:
    """Returns the jars. ``kafka`` is the version of Spark's Kafka connector and of Spark's Avro package. ``tokens`` is
    the version of the Kafka connector's token provider."""
    return SparkJars(
        delta=f"io.delta:delta-spark_{minor}_2.13:4.4.0",
        kafka=(f"ivy://{_KAFKA}:{kafka}?exclude={_TOKENS}", f"ivy://{_TOKENS}:{tokens}?transitive=false"),
        avro=f"ivy://org.apache.spark:spark-avro_2.13:{kafka}?transitive=false",
        hadoop=hadoop,
        aws_sdk=aws_sdk,
    )


# The Kafka connector of Spark 4.2 requires a token provider of the same version, which is not published. The token
# provider of Spark 4.0 has everything that the connector uses.
_BY_MINOR = {
    "4.0": _jars("4.0", kafka="4.0.1", tokens="4.0.0", hadoop="3.4.1", aws_sdk="2.24.6"),
    "4.1": _jars("4.1", kafka="4.1.1", tokens="4.1.1", hadoop="3.4.2", aws_sdk="2.29.52"),
    "4.2": _jars("4.2", kafka="4.2.0", tokens="4.0.0", hadoop="3.5.0", aws_sdk="2.57.8"),
}

SUPPORTED = tuple(_BY_MINOR)
"""The minor versions of Spark that rw_sql supports, in ascending order."""


def jars_of(version: str) -> SparkJars:
    """The jars for a version of Spark, such as ``4.1.2``.

    Raises SqlError SPARK_VERSION if rw_sql does not run on this version.
    """
    jars = _BY_MINOR.get(minor_of(version))
    if jars is None:
        raise SqlError(
            SPARK_VERSION,
            f"rw_sql runs on Spark {SUPPORTED[0]} to {SUPPORTED[-1]}, but this is Spark {version}",
            hint=f"pip install 'pyspark>={SUPPORTED[0]},<{_after(SUPPORTED[-1])}'",
        )
    return jars


def installed_jars() -> SparkJars:
    """The jars for the PySpark that this process imports. Raises SqlError SPARK_VERSION if rw_sql does not support the
    PySpark version."""
    from pyspark import __version__

    return jars_of(__version__)


def minor_of(version: str) -> str:
    """The minor version of a full version, such as ``4.1`` for ``4.1.2``."""
    return ".".join(version.split(".")[:2])


def _after(minor: str) -> str:
    major, _, number = minor.partition(".")
    return f"{major}.{int(number) + 1}"
