"""Handles the queries of views as sqlglot trees. The package finds the tables that a query reads, rewrites a query to a
form whose result can be maintained incrementally, and renames relations.

From ``syntax``, this package imports only ``lexing``. Begin with ``trees``.
"""
