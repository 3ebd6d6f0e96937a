"""``rw-sql shell``: the prompt, its backslash commands, its completion, and Spark that starts behind it.

Imports: ``session`` and below, and modules of ``cli``. Imported by: ``cli.main``. Begin with ``loop``; ``backend`` is
the warehouse and its Spark, ``commands`` what a backslash begins, ``prompt`` the line editor, ``completion`` what Tab
offers.
"""
