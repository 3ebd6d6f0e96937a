"""Statements on foreign checkpoints: SHOW CHECKPOINT, INJECT CHECKPOINT OFFSETS and their undo.

Imports: ``inject_common`` and the rooms of ``plan`` below ``statements``. Begin with ``checkpoint``; ``context``
collects the facts about the checkpoint, ``targets`` reads the new offsets.
"""
