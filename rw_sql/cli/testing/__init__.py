"""``rw-sql test``: sqllogictest files and unit tests of views, each on a throwaway warehouse.

Imports: ``session``, the names of ``plan``, and the broker and output of ``cli``. Begin with ``runner``; ``slt_file``
and ``unit_file`` describe the files.
"""
