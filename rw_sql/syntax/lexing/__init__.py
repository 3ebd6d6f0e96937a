"""Text → tokens: the scanner, identifiers and how they are quoted, invisible characters.


Imports: ``errors``. Imported by: every room of ``syntax`` but ``statements``.
Begin with ``tokens``.
"""
