"""What a change comes to for everything else: splits, dependents, and the readers that views have of their own.

Previews and refusals of unsafe operations are computed here.

Imports: ``result``, ``checks``, ``requests``, ``model``. Imported by: ``statements``.
Begin with ``source_impact`` (what a move of positions comes to) and ``dependents``.
"""
