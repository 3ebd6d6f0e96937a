"""``rw-sql test``: sqllogictest files and unit tests of views, each on a warehouse that is thrown away.


Imports: ``session``, ``plan``'s names, ``cli``'s broker and output. Imported by: ``cli.main``.
Begin with ``runner``; ``slt_file`` and ``unit_file`` say what the files look like.
"""
