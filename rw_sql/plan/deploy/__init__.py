"""Compares a folder of CREATE statements with the catalog, and derives the statements that make the catalog match the
folder.

Within ``plan``, this package may import only ``statements`` and the packages that ``statements`` may import. Begin with
``folder``, which reads objects from files. Continue with ``changes``, which compares the objects with the catalog, and
with ``plan_file``.
"""
