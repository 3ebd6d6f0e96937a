"""A Spark session that accepts rw_sql's statements: ``connect``, ``attach``, ``detach``, and the wrapped ``spark.sql``.

Imports: ``runtime`` and below. Begin with ``attach``.
"""
