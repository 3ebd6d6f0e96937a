"""Schemas of records. The package has a client for schema registries, and derives columns from Avro, Protobuf and JSON
schemas.

``client`` supports registries with Confluent's API; ``sources/schema_registry.toml`` contains the options.

This package may import ``formats``, ``redirects`` and ``spec``, and outside ``connectors`` ``errors`` and ``masking``.
Begin with ``client``; ``avro`` derives the types of columns from an Avro schema.
"""
