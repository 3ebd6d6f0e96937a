"""Records become rows: FORMAT and ENCODE as expressions of Spark, with the error of each record that is none.

Formats of changes (Debezium, Maxwell, Canal) are in ``change_formats``.

Imports: ``support``. Imported by: every room above.
Begin with ``decoder``.
"""
