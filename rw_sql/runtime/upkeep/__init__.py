"""Performs upkeep of jobs' tables. Upkeep consists of compaction, retention, and the deletion of files that no reader
in the catalog needs.

The module ``table_upkeep`` decides when a job does this work. The file ``delta/compaction.py`` compacts files, and
``delta/table_files.py`` deletes files and commits. ``dropped_objects`` deletes the tables and checkpoints of dropped
objects.

Imports: ``positions``, ``jobs``, ``delta`` and below. Begin with ``table_upkeep``.
"""
