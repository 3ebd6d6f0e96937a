"""Statements on foreign checkpoints: SHOW CHECKPOINT, and INJECT CHECKPOINT OFFSETS with its undo.

Imports: ``inject_common`` and the packages of ``plan`` below ``statements``. Begin with ``checkpoint``. The module
``context`` collects the facts about the checkpoint, and ``targets`` reads the new offsets.
"""
