"""The command line ``rw-sql``. Only this and ``magics`` print.


Imports: everything. Imported by: nothing.
Begin with ``main``: each command has a module.
"""
