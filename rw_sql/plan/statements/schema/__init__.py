"""Lowers the statements about schemas: CREATE SCHEMA, DROP SCHEMA, USE, SHOW SCHEMAS.

From ``statements``, this package imports ``common``, ``source``, ``view``, ``sink``, ``table``, ``connection`` and
``session``. Begin with ``schema``.
"""
