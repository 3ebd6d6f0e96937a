"""What all commands have in common: shared options, exit statuses, examples, and completion in shells.

Imports: ``errors``. Imported by: ``cli``. Begin with ``options.py``.
"""
