"""``rw-sql diff``, ``apply`` and ``rollback``: a warehouse is brought to a folder of CREATE statements, and back.

Imports: ``plan/deploy``, ``session``, and what other commands share. Imported by: ``main``.
Begin with ``commands``.
"""
