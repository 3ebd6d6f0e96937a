"""Decodes records whose schema is in a registry.

``records`` reads the records of a source, ``message_records`` those that are Protobuf messages. ``writers`` finds the
schemas with which the records were written, ``avro_rows`` reads one column, ``events`` contains the change formats. May
import the rest of ``decoding`` except ``decoder``. Begin with ``records.py``.
"""
