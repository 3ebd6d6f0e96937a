"""Schemas of records: a registry's client, and what the columns of an Avro, Protobuf or JSON schema are.

May import ``connectors/spec.py`` and ``connectors/support``. Begin with ``client.py``; ``avro.py`` has the types.
"""
