"""Schemas of records: a client for schema registries, and the columns that an Avro, Protobuf or JSON schema defines.

``client`` supports registries with Confluent's API; ``sources/schema_registry.toml`` contains the options.

Imports: ``formats``, ``spec``. Begin with ``client``; ``avro`` derives the types of columns from an Avro schema.
"""
