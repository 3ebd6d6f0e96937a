"""The output of commands in a terminal: tables, errors, questions and status lines.

Imports: ``errors``, ``session`` and ``plan``'s results. Begin with ``output``.
"""
