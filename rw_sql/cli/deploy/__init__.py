"""``rw-sql diff``, ``apply`` and ``rollback``: compare a warehouse with a folder of CREATE statements, change the
warehouse to match the folder, and restore the rows that a view had before its last rebuild.

Imports: ``plan/deploy`` and the rest of ``plan``, ``metastore``, ``model``, ``runtime``, ``session``, and the modules
that commands share. Begin with ``commands``; ``possible_changes`` computes the changes, ``printing`` prints them, and
``execution`` runs their statements.
"""
