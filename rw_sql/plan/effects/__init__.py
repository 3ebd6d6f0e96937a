"""Computes the effects of a change on splits, dependents and direct readers.

The previews of unsafe operations, and the reasons to refuse them, are derived from these effects.

Imports: ``result``, ``checks``, ``ports``, ``model``. Begin with ``verdicts`` (the row for a split in a preview) and
``dependents``; the module ``impact_of_changes`` combines the effects of several changes, as in a block, an UNDO or a
REWIND.
"""
