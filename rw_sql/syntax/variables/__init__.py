"""Expands scripts: replaces variables and executes backslash commands.

Also maps positions in the expanded script back to positions in the original files.

From ``syntax``, this package imports only ``lexing``. Begin with ``expand``.
"""
