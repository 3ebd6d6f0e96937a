"""Schemas of records: a client for schema registries, and the columns that an Avro, Protobuf or JSON schema defines.

May import ``connectors/spec.py`` and ``connectors/support``. Begin with ``client.py``; ``avro.py`` has the types.
"""
