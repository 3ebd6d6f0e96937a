"""Computes the effects of a change on splits, dependents and direct readers.

From these effects, the statements derive the previews of unsafe operations and the reasons to refuse such operations.

This package may import only ``result``, ``checks``, ``ports``, ``model``, and the layers below ``model``. Begin with
``verdicts``, which computes the row for a split in a preview, and with ``dependents``. The module ``impact_of_changes``
combines the effects of several changes, for example for a block, an UNDO or a REWIND.
"""
