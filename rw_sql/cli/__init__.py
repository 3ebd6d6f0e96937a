"""The command line ``rw-sql``. Of the packages of ``rw_sql``, only this package and ``magics`` print.

Each command, or group of commands, has a subpackage (``source``, ``checkpoint``, ``formatting``, ``servers``, …), whose
module ``command`` or ``commands`` defines the options. Commands share ``interface`` (options, exit statuses),
``terminal`` (printed tables, questions) and ``reports`` (output formats for programs). The modules beside these
packages read files (``text_input``, ``sql_files``), start Spark (``spark_start``, ``pyspark_shell``) and stop child
processes (``process_cleanup``). Two further modules make the error for a script that ends inside a block
(``open_block``) and generate the reference pages (``reference``).

This package may import every package of ``rw_sql`` except ``magics``. Begin with ``main``, which registers the
commands.
"""
