"""Code that several connector families use. It includes records and their readers (``records``), conversions of a
sink's values, and files with secrets.

Imports: ``base``, ``formats``, ``sink``, ``spec``, ``object_stores``, ``packages``. Begin with ``typed_records``.
"""
