"""A folder of SQL as the commands take it: how ``rw-sql check`` reads it.

Imports: ``plan``, and of ``cli`` what finds, reads and formats files. Imported by: the commands.
Begin with ``check_input``, which puts statements in the order of what names what.
"""
