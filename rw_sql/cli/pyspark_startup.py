"""Runs in the namespace of the pyspark shell that ``rw-sql pyspark`` starts, and attaches the shell's Spark session."""

import rw_sql

rw_sql.attach(spark)  # type: ignore[name-defined]  # noqa: F821  # the shell made it
sql = spark.sql  # type: ignore[name-defined]  # noqa: F821
print("rw_sql is attached: spark.sql and sql accept its statements.")
