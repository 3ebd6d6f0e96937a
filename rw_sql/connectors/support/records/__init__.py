"""Records as the columns of Arrow tables: their schema, kept ranges of them, and the readers that give them to Spark.

Imports: ``base`` and the modules of ``support``. Begin with ``record_columns``.
"""
