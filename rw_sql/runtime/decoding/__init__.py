"""Decodes records to rows by FORMAT and ENCODE, with Spark expressions. A record that cannot be decoded gets an error.

Formats of changes (Debezium, Maxwell, Canal) are in ``change_formats``. Arrow decodes the large batches of JSON in
Spark's Python processes (``json_blocks``).

Imports: ``spark``, ``support``. Begin with ``decoder``.
"""
