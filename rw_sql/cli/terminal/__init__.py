"""The output of commands in a terminal: tables, errors, questions and status lines.

This package imports ``masking``, ``session`` and layers below ``session``, but no other package of ``rw_sql.cli``.
Begin with ``output``.
"""
