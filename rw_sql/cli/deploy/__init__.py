"""``rw-sql diff``, ``apply`` and ``rollback``: bring a warehouse to the state of a folder of CREATE statements, and
back.

Imports: ``plan/deploy``, ``session``, and modules shared by commands. Begin with ``commands``.
"""
