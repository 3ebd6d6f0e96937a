"""Makes a Spark session accept rw_sql's statements. Contains ``connect``, ``attach``, ``detach`` and the wrapper of
``spark.sql``.

This package may import ``rw_sql.runtime`` and the packages below it. Begin with ``attach``.
"""
