"""Compares a folder of CREATE statements with the catalog, and derives the statements that remove the differences.

Imports: ``statements`` and all rooms of ``plan`` below. Begin with ``folder`` (texts to objects), then ``changes``
(objects and catalog to changes), then ``plan_file``.
"""
