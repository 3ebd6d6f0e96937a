"""A Spark session that accepts the statements: ``connect``, ``attach``, ``detach``, and the wrapped ``spark.sql``.

Imports: ``runtime`` and below. Imported by: ``cli``, ``magics``, and ``rw_sql`` itself, lazily. Begin with ``attach``.
"""
