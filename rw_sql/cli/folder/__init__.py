"""A folder of SQL as the commands take it: its files, its environments, and how ``rw-sql check`` reads it.

Imports: ``plan``, and of ``cli`` what reads and formats files. Imported by: the commands.
Begin with ``sql_files``; ``check_input`` puts statements in the order of what names what.
"""
