"""Upkeep of jobs' tables: compaction, retention, and deletion of files that no reader in the catalog needs.

Imports: ``positions``, ``jobs``, ``delta`` and below. Begin with ``table_upkeep``.
"""
