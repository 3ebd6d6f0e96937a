"""The error for a value of a sink's row that an encoding with a schema cannot hold."""


class UnwritableError(Exception):
    """A value that the encoding cannot hold; the text is the reason."""
