"""Performs upkeep of jobs' tables. Upkeep consists of compaction, retention, and the deletion of files that no reader
in the catalog needs.

The module ``table_upkeep`` decides when a job performs upkeep. Outside of this package, ``delta/compaction.py``
compacts files, and ``delta/table_files.py`` deletes files and commits. ``dropped_objects`` deletes the tables and
checkpoints of dropped objects.

This package may import ``runtime.positions``, ``runtime.jobs``, ``runtime.delta`` and the packages below these. Begin
with ``table_upkeep``.
"""
