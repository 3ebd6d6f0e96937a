"""Handles queries of views as sqlglot trees. The package finds the tables that queries read, makes forms of queries
that can be maintained, and renames relations.

Imports: ``lexing``. Begin with ``trees``.
"""
