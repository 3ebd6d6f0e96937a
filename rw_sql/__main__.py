"""``python -m rw_sql`` runs the command ``rw-sql``."""

from rw_sql.cli.main import app

if __name__ == "__main__":
    app()
