"""Implements ``rw-sql diff``, ``apply`` and ``rollback``. These commands compare a warehouse with a folder of CREATE
statements, change the warehouse so that it matches the folder, and restore the rows that a view had before its last
rebuild.

Imports: ``plan/deploy`` and the rest of ``plan``, ``metastore``, ``model``, ``runtime``, ``session``, and the modules
that commands share. Begin with ``commands``. The module ``possible_changes`` computes the changes, ``printing`` prints
the changes, and ``execution`` runs their statements.
"""
