"""A long run of random statements, moves and faults on one warehouse: ``python -m soak``."""
