"""Implements ``rw-sql shell``: the prompt, the backslash commands, the completion, and the start of Spark in the
background.

This package imports ``session``, the packages below ``session``, and other modules of ``cli``. Begin with ``loop``.
``backend`` contains the warehouse and its Spark session, ``commands`` contains the backslash commands, ``prompt``
contains the line editor, and ``completion`` contains the choices of the Tab key.
"""
