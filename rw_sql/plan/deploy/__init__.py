"""A folder of CREATE statements and the catalog: their differences, and the statements that remove them.

Imports: ``statements`` and all rooms of ``plan`` below. Imported by: ``cli``.
Begin with ``folder`` (texts to objects), then ``changes`` (objects and catalog to changes), then ``plan_file``.
"""
