"""The command line ``rw-sql``. Only this package and ``magics`` print.

Each command has a room (``source``, ``checkpoint``, ``formatting``, ``servers``, …), whose module ``command`` or
``commands`` defines the command's options. Commands share ``interface`` (options, exit statuses), ``terminal`` (printed
tables, questions) and ``reports`` (forms for programs). The modules beside the rooms read files (``text_input`` and
``sql_files``), start Spark (``spark_start``, ``pyspark_shell``), end child processes (``process_cleanup``), and
generate the reference pages (``reference``).

Imports: everything. Begin with ``main``, which registers the commands.
"""
