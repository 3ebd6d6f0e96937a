"""What all commands have in common: shared options, exit statuses, examples, and completion in shells.

Imports: ``errors``. Begin with ``options.py``.
"""
