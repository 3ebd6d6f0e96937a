"""Lists the words that the parser accepts in the clause FORMAT … ENCODE …. RisingWave accepts the same words."""

FORMATS = ("NATIVE", "NONE", "DEBEZIUM", "DEBEZIUM_MONGO", "MAXWELL", "CANAL", "UPSERT", "PLAIN")
"""The valid words after FORMAT."""

ENCODES = ("AVRO", "TEXT", "BYTES", "CSV", "PROTOBUF", "JSON", "TEMPLATE", "PARQUET", "NATIVE", "NONE")
"""The valid words after ENCODE and KEY ENCODE."""
