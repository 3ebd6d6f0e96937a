"""CREATE, ALTER, REFRESH and DROP TABLE, changes to columns, and RENAME of any object.

A table is a source and a view with the same name: ``source_of_table`` keeps their definitions consistent.

Imports: ``common``, ``source`` and the packages of ``plan`` below ``statements``. Begin with ``table``.
"""
