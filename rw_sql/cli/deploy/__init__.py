"""Implements ``rw-sql diff``, ``apply`` and ``rollback``. ``diff`` compares a warehouse with a folder of CREATE
statements, and ``apply`` makes the warehouse match the folder. ``rollback`` restores the rows that a view had before
its last rebuild.

This package imports mainly ``plan``, ``metastore``, ``model``, ``runtime``, ``session``, and the modules of ``cli``
that several commands share. Begin with ``commands``. The module ``possible_changes`` computes the changes, ``printing``
prints the changes, and ``execution`` runs their statements.
"""
