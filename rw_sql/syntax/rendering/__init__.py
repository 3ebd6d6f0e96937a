"""Renders statements as canonical text, one module per family. The entry point is :func:`rw_sql.syntax.render`.

Imports: ``lexing``, ``statements``. Begin with ``render``.
"""
