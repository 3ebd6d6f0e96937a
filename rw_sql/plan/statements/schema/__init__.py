"""Lowers the statements about schemas: CREATE SCHEMA, DROP SCHEMA, USE, SHOW SCHEMAS.

Imports: ``common``, ``source``, ``view``, ``sink``, ``table``, ``connection``, ``session``. Begin with ``schema``.
"""
