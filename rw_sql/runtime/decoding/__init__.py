"""Decodes records to rows by FORMAT and ENCODE, with Spark expressions. A record that cannot be decoded gets an error.

The package ``change_formats`` contains the formats of changes (Debezium, Maxwell, Canal). In Spark's Python processes,
Arrow decodes large batches of JSON (``json_blocks``).

Imports: ``spark``, ``support``. Begin with ``decoder``.
"""
