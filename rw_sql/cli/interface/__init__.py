"""Code that all commands share: options, exit statuses, examples, and completion in shells.

Imports: ``errors``. Begin with ``options.py``.
"""
