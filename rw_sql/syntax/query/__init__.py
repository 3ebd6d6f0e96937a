"""Queries of views as sqlglot trees: the tables that they read, forms that can be maintained, and renaming of
relations.

Imports: ``lexing``. Imported by: ``model``, ``plan``, ``runtime``. Begin with ``trees``.
"""
