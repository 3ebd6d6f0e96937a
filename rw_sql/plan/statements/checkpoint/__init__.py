"""Statements on checkpoints of jobs made without rw_sql: INJECT INTO CHECKPOINT, RESTORE CHECKPOINT, their EXPLAIN.


Imports: ``inject_common`` and the rooms beside ``statements``. Imported by: ``move`` and ``plan/lower.py``.
Begin with ``checkpoint``; ``context`` has what such a statement knows of the checkpoint, ``targets`` its offsets.
"""
