"""Lowers CREATE, ALTER, REFRESH and DROP TABLE, changes to columns, and RENAME of any object.

A table consists of a source and a view with the same name. The module ``source_of_table`` keeps the two definitions
consistent.

Imports: ``common``, ``source`` and the packages of ``plan`` below ``statements``. Begin with ``table``.
"""
