"""The version of rw_sql."""

__version__ = "0.2.0.dev0"
