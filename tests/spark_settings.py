"""The settings of the tests' Spark sessions."""

from __future__ import annotations

from tests.java import java_options

SPARK_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": java_options(),
}

FEW_ROWS = {
    **SPARK_SETTINGS,
    # Rows are computed as Spark does it where code cannot be made. To write the code of each projection anew for every
    # task took a fifth of the JVMs' time, and to compile it some more, for a hundred rows. The demo, the notebooks, the
    # shells, the benchmarks and what reads a million rows run on made code, as users do.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
"""For sessions whose statements see some hundred rows each."""
