"""Implements ``rw-sql check``, which reads files and folders, plans their statements, and prints the findings.

This package imports mainly ``plan``, ``metastore``, ``session``, ``syntax``, and the modules of ``cli`` that find, read
and format files. Begin with ``check``. The module ``check_input`` orders the statements of a folder by their
dependencies, and ``folder_on_catalog`` checks the changes that the folder would make to a catalog.
"""
