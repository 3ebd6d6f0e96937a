"""Computes the effects of a change on splits, dependents and direct readers.

The previews of unsafe operations, and the reasons to refuse them, are derived from these effects.

Imports: ``result``, ``checks``, ``ports``, ``model``. Begin with ``source_impact`` (the effects of a move of positions)
and ``dependents``.
"""
