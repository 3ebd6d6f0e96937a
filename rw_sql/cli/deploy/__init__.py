"""``rw-sql diff``, ``apply`` and ``rollback``: bring a warehouse to the state of a folder of CREATE statements, and
back.

Imports: ``plan/deploy`` and the rest of ``plan``, ``metastore``, ``model``, ``runtime``, ``session``, and the modules
that commands share. Begin with ``commands``; ``possible_changes`` computes the changes, ``printing`` prints them, and
``execution`` runs their statements.
"""
