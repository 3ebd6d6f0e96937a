"""A folder of SQL files as input of the commands: its environments, and its order of statements for ``rw-sql check``.

Imports: ``plan``, and the modules of ``cli`` that find, read and format files. Imported by: the commands. Begin with
``check_input``, which orders statements by their dependencies.
"""
