"""How a view's table is kept up to date: one module a strategy; :mod:`rw_sql.runtime.view` runs them."""
