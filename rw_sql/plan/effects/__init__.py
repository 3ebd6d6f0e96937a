"""Effects of a change on splits, dependents and direct readers.

Previews and refusals of unsafe operations are computed here.

Imports: ``result``, ``checks``, ``ports``, ``model``. Begin with ``source_impact`` (the effects of a move of positions)
and ``dependents``.
"""
