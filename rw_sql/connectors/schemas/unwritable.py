"""The error for a value of a sink's row that an encoding with a schema cannot represent."""


class UnwritableError(Exception):
    """Raised for a value that the encoding cannot represent. The text of the error is the reason."""
