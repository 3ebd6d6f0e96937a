"""Decodes records whose schema is in a schema registry.

The module ``records`` decodes Avro records, and ``message_records`` decodes Protobuf messages. ``writers`` finds the
schemas with which the records were written, ``avro_rows`` reads the Avro records in one column, and ``events``
implements the change formats.

Within ``decoding``, this package may import every module except ``decoder``. Begin with ``records``.
"""
