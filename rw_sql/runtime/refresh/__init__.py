"""REFRESH TABLE: a whole upstream is loaded beside a table, and what differs is merged into it, chunk by chunk."""
