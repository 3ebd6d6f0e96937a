"""``rw-sql shell``: the prompt, its backslash commands, its completion, and the start of Spark in the background.

Imports: ``session`` and below, and modules of ``cli``. Begin with ``loop``. ``backend`` contains the warehouse and its
Spark session, ``commands`` the backslash commands, ``prompt`` the line editor, and ``completion`` the choices of the
Tab key.
"""
