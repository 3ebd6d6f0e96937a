"""Decodes records to rows by FORMAT and ENCODE, with Spark expressions. A record that cannot be decoded becomes a row
with an error.

The package ``change_formats`` decodes the formats whose records describe changes to rows (Upsert, Debezium, Maxwell,
Canal). Large batches of JSON are decoded by Arrow in Spark's Python processes (``json_blocks``).

Within ``runtime``, this package imports only ``spark`` and ``support``. Begin with the module ``decoder``.
"""
