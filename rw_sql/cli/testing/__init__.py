"""Implements ``rw-sql test``, which runs sqllogictest files and unit tests of views, each on a temporary warehouse.

This package imports ``session``, the layers below ``session``, and other packages of ``rw_sql.cli``, mainly ``script``,
``servers`` and ``terminal``. Begin with ``runner``. The docstrings of ``slt_file`` and ``unit_file`` describe the
formats of the test files.
"""
