"""Code for records as Arrow tables. It includes the schema of these tables, the ranges of records that are kept in
memory, and the readers that pass records to Spark.

Imports: ``base`` and the modules of ``support``. Begin with ``record_columns``.
"""
