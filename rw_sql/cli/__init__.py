"""The command line ``rw-sql``. Only this package and ``magics`` print.

Each command, or group of commands, has a subpackage (``source``, ``checkpoint``, ``formatting``, ``servers``, …), whose
module ``command`` or ``commands`` defines the options. Commands share ``interface`` (options, exit statuses),
``terminal`` (printed tables, questions) and ``reports`` (output formats for programs). The modules beside these
packages read files (``text_input``, ``sql_files``), start Spark (``spark_start``, ``pyspark_shell``) and stop child
processes (``process_cleanup``). They also report a script that ends inside a block (``open_block``), and generate the
reference pages (``reference``).

Imports: all packages. Begin with ``main``, which registers the commands.
"""
