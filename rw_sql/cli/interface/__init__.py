"""What all commands have in common: options with one name each, exit statuses, examples, completion in shells.

Imports: ``errors``. Imported by: ``cli``. Begin with ``options.py``.
"""
