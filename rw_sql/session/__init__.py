"""A Spark session that takes the statements: ``connect``, ``attach``, ``detach``, and the ``spark.sql`` in its place.


Imports: ``runtime`` and below. Imported by: ``cli``, ``magics``, and ``rw_sql`` itself, lazily.
Begin with ``attach``.
"""
