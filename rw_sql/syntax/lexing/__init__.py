"""Converts text to tokens. The package contains the scanner, the rules for identifiers and quoting, and the check for
invisible characters.

This package imports no other package of ``syntax``. Begin with ``tokens``.
"""
