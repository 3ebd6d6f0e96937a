"""Compares a folder of CREATE statements with the catalog, and derives the statements that remove the differences.

Imports: ``statements`` and the packages of ``plan`` below it. Begin with ``folder`` (texts to objects), then
``changes`` (objects and catalog to changes), then ``plan_file``.
"""
