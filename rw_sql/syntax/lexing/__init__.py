"""Text → tokens: the scanner, identifiers and how they are quoted, invisible characters.


Imports: ``errors``. Imported by: every other room of ``syntax``.
Begin with ``tokens``.
"""
