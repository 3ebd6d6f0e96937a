"""Renders statements as canonical text, one module per family. The entry point is :func:`rw_sql.syntax.render`.

Imports: ``lexing``, ``statements``. Imported by: ``rw_sql.syntax``. Begin with ``render``.
"""
