"""Scripts with variables and backslash commands → text without them, with a map back to the files.


Imports: ``errors``, ``lexing``. Imported by: ``cli``, ``magics``.
Begin with ``expand``.
"""
