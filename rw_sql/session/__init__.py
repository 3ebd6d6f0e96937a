"""A Spark session that accepts the statements: ``connect``, ``attach``, ``detach``, and the wrapped ``spark.sql``.

Imports: ``runtime`` and below. Begin with ``attach``.
"""
