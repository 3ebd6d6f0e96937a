"""What commands print to a terminal, and what they ask there: tables, errors, questions, status lines.

Imports: ``errors``, ``session`` and ``plan``'s results. Begin with ``output``.
"""
