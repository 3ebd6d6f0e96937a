"""Renders statements as canonical text. The entry point is :func:`rw_sql.syntax.render`.

The modules follow the first words of a statement: ``create``, ``alter``, and ``operations`` for the other statements.

Imports: ``lexing``, ``statements``. Begin with ``render``.
"""
