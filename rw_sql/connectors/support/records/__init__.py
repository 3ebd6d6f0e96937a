"""Records as Arrow tables: the schema of these tables, ranges of records that are kept in memory, and the readers that
pass records to Spark.

Imports: ``base`` and the modules of ``support``. Begin with ``record_columns``.
"""
