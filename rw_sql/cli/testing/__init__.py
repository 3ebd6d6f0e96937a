"""``rw-sql test``: sqllogictest files and unit tests of views, each on a throwaway warehouse.

Imports: ``session``, ``plan``'s names, ``cli``'s broker and output. Imported by: ``cli.main``. Begin with ``runner``;
``slt_file`` and ``unit_file`` describe the files.
"""
