"""Expands scripts: replaces variables and executes backslash commands.

Maps positions in the result back to the files.

Imports: ``errors``, ``lexing``. Begin with ``expand``.
"""
