"""Lowers the statements on checkpoints of foreign jobs: SHOW CHECKPOINT, and INJECT CHECKPOINT OFFSETS with its undo.

From ``plan``, this package imports ``statements/inject_common`` and the packages in the layers below ``statements``.
Begin with ``checkpoint``. The module ``context`` collects the facts about the checkpoint, and ``targets`` reads the new
offsets.
"""
