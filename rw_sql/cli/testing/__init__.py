"""``rw-sql test``: sqllogictest files and unit tests of views, each on a temporary warehouse.

Imports: ``session`` and below, ``servers``, ``script``, ``terminal``. Begin with ``runner``; ``slt_file`` and
``unit_file`` describe the files.
"""
