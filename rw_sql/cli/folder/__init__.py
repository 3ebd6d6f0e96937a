"""The folders of SQL that commands accept, and how ``rw-sql check`` reads them.

Imports: ``plan``, and the modules of ``cli`` that find, read and format files. Begin with ``check_input``, which orders
statements by their dependencies.
"""
