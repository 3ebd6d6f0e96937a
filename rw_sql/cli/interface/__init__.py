"""Code that all commands share: options, exit statuses, examples, and completion in shells.

This package imports mainly ``errors``, and in single places ``masking``, ``syntax`` and ``plan/offline``. Begin with
``options``.
"""
