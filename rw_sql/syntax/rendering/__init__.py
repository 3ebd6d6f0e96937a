"""Statement → canonical text, by family. The entry is :func:`rw_sql.syntax.render`."""
