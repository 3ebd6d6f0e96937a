"""Computes the effects of a change to the catalog on splits, dependents and direct readers.

From these effects, the lowering of a statement derives the preview of an unsafe operation, or the reason to refuse it.
A *move* is a change of the positions of a source's splits, or of the upstream that the source reads.

This package may import only ``result``, ``checks``, ``ports``, ``model``, and the layers below ``model``. Begin with
``verdicts``, which computes a preview's row for a split, and with ``dependents``. The module ``impact_of_changes``
combines the effects of several changes, for example for a block, an UNDO or a REWIND.
"""
