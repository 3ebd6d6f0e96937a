"""Text → tokens: the scanner, identifiers and quoting, invisible characters.

Imports: ``errors``. Imported by: every room of ``syntax`` but ``statements``. Begin with ``tokens``.
"""
