"""Converts text to tokens. The package contains the scanner, identifiers and quoting, and the check for invisible
characters.

Imports: ``errors``. Begin with ``tokens``.
"""
