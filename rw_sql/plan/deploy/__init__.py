"""A folder of CREATE statements and the catalog: what separates them, and the statements that bring one to the other.

Imports: ``statements`` and all rooms of ``plan`` below. Imported by: ``cli``.
Begin with ``folder`` (texts to objects), then ``changes`` (objects and catalog to changes), then ``plan_file``.
"""
