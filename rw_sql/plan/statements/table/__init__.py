"""Lowers CREATE, ALTER, REFRESH and DROP TABLE. Also lowers RENAME TO, SET SCHEMA and SWAP WITH for all kinds of
objects that support these statements.

The catalog stores a table with a connector as two records with the same name: a source and a table. The module
``source_of_table`` keeps their definitions consistent. A table of a change data capture source has no source of its
own.

Within ``plan``, this package imports only ``statements.common``, ``statements.source`` and the packages below
``statements``. Begin with the module ``table``.
"""
