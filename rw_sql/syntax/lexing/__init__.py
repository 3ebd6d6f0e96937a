"""Text → tokens: the scanner, identifiers and quoting, invisible characters.

Imports: ``errors``. Begin with ``tokens``.
"""
