"""Decodes records to rows: FORMAT and ENCODE as Spark expressions, with an error for each record that cannot be
decoded.

Formats of changes (Debezium, Maxwell, Canal) are in ``change_formats``. Arrow decodes the large batches of JSON in
Spark's Python processes (``json_blocks``).

Imports: ``support``. Begin with ``decoder``.
"""
