"""The words of the clause FORMAT … ENCODE …, as the parser accepts them. The keywords are RisingWave's."""

FORMATS = ("NATIVE", "NONE", "DEBEZIUM", "DEBEZIUM_MONGO", "MAXWELL", "CANAL", "UPSERT", "PLAIN")
"""The valid words after FORMAT."""

ENCODES = ("AVRO", "TEXT", "BYTES", "CSV", "PROTOBUF", "JSON", "TEMPLATE", "PARQUET", "NATIVE", "NONE")
"""The valid words after ENCODE and KEY ENCODE."""
