"""Compares a folder of CREATE statements with the catalog, and derives the statements that remove the differences.

Imports: ``statements`` and the packages of ``plan`` below ``statements``. Begin with ``folder``, which reads files as
objects, and with ``changes``, which compares the objects with the catalog. The next module is ``plan_file``.
"""
