"""The settings of the tests' Spark sessions."""

from __future__ import annotations

from tests.support.java import java_options

SPARK_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": java_options(),
}

_NO_MADE_CODE = {
    # Spark computes rows without generated code. For a hundred rows, generating code for each projection of every task
    # takes a fifth of the JVMs' time, and compiling the code takes more. The demo, the notebooks, the benchmarks and
    # the proofs that read a million rows use generated code, as users do.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}

FEW_ROWS = {**SPARK_SETTINGS, **_NO_MADE_CODE}
"""The settings for sessions whose statements process a few hundred rows each."""

_MANY = 100_000


def settings_for(rows: int) -> dict[str, str]:
    """The settings of a session whose statements process ``rows`` rows."""
    return FEW_ROWS if rows < _MANY else SPARK_SETTINGS


def java_properties() -> str:
    """Those of the settings that a JVM accepts as properties when it starts. With these properties, the settings reach
    the servers, shells and scripts that tests start."""
    settings = {key: SPARK_SETTINGS[key] for key in ("spark.ui.enabled", "spark.sql.shuffle.partitions")}
    return " ".join(f"-D{key}={value}" for key, value in {**settings, **_NO_MADE_CODE}.items())
