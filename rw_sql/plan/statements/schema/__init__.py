"""Lowers the statements about schemas: CREATE SCHEMA, DROP SCHEMA, USE, SHOW SCHEMAS.

Of ``statements``, this package imports ``common``, ``source``, ``view``, ``sink``, ``table``, ``connection`` and
``session``. Begin with ``schema``.
"""
