"""Views' queries as sqlglot trees: the tables they read, the form that is maintained, renamed relations.

Imports: ``lexing``. Imported by: ``model``, ``plan``, ``runtime``. Begin with ``trees``.
"""
