"""Renders statements as canonical text. The entry point is :func:`rw_sql.syntax.render`.

The modules correspond to the first word of a statement: ``create`` (also for REPLACE and DROP), ``alter``, and
``operations`` for all other statements.

From ``syntax``, this package imports ``lexing`` and ``statements``. Begin with ``render``.
"""
