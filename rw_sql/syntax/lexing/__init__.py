"""Converts text to tokens. The package contains the scanner, the rules for identifiers and quoting, and the check for
invisible characters.

Imports: ``errors``. Begin with ``tokens``.
"""
