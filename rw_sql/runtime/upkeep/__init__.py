"""Upkeep of the tables of jobs: compaction, retention, and removal of what no reader of the catalog needs.


Imports: ``positions``, ``jobs``, ``delta`` and below. Imported by: the jobs and ``control``.
Begin with ``table_upkeep``.
"""
