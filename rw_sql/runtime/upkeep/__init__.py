"""Upkeep of jobs' tables: compaction, retention, and deletion of files that no reader in the catalog needs.

``table_upkeep`` decides when a job does this work. How files are compacted, and their sizes, are in
``delta/compaction.py``; the deletion of files and commits is in ``delta/table_files.py``. ``dropped_objects`` deletes
the tables and checkpoints of dropped objects.

Imports: ``positions``, ``jobs``, ``delta`` and below. Begin with ``table_upkeep``.
"""
