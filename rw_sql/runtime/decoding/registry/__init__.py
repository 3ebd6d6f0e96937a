"""Decodes records whose schema is in a registry.

The module ``records`` decodes the records of a source, and ``message_records`` decodes the records of a source of
Protobuf messages. ``writers`` finds the schemas with which the records were written, ``avro_rows`` reads one column of
Avro records, and ``events`` contains the change formats.

Imports: the rest of ``decoding`` except ``decoder``. Begin with ``records``.
"""
