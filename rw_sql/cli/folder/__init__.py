"""A folder of SQL as the commands take it: how ``rw-sql check`` reads it.

Imports: ``plan``, and the modules of ``cli`` that find, read and format files. Imported by: the commands. Begin with
``check_input``, which orders statements by their dependencies.
"""
