"""Queries of views as sqlglot trees: the tables that they read, forms that can be maintained, and renaming of
relations.

Imports: ``lexing``. Begin with ``trees``.
"""
