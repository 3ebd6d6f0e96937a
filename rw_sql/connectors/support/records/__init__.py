"""Code for records in the form of Arrow tables. The package defines the schema of these tables, caches ranges of
records in memory, and passes records to Spark.

This package may import ``base`` and the modules of ``rw_sql.connectors.support``. Begin with ``record_columns``.
"""
