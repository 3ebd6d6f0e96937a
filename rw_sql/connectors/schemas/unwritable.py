"""The error for a value in a sink's row that the sink's Avro or Protobuf encoding cannot represent."""


class UnwritableError(Exception):
    """Raised for a value that the encoding cannot represent. The text of the error is the reason."""
