"""Implements ``rw-sql test``, which runs sqllogictest files and unit tests of views, each on a temporary warehouse.

Imports: ``session`` and below, ``servers``, ``script``, ``terminal``. Begin with ``runner``. The modules ``slt_file``
and ``unit_file`` describe the files.
"""
