"""The command line ``rw-sql``. Only this package and ``magics`` print.

Imports: everything. Begin with ``main``: each command has a module.
"""
