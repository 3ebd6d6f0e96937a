"""A process that runs a warehouse's jobs and serves Spark Connect in the same JVM. The arguments are the warehouse and
the port."""

from __future__ import annotations

import sys

import rw_sql
from tests.support.spark_settings import FEW_ROWS


def main(warehouse: str, port: str) -> None:
    spark = rw_sql.connect(
        warehouse,
        config={
            **FEW_ROWS,
            # Connect's server can convert rows only with generated code.
            "spark.sql.codegen.factoryMode": "FALLBACK",
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.port": port,
        },
    )
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "detach":
            rw_sql.detach(spark)
            print("detached", flush=True)
        elif line.strip() == "end":
            rw_sql.detach(spark)
            spark.stop()
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
