"""Generated rows, for demos and tests: the same rows for the same offsets, however often they are read.


Imports: the public modules of ``connectors``.
Begin with ``source``.
"""
