"""A table of PostgreSQL, and the table that REFRESH TABLE loads from it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from tests.support.postgres import PASSWORD

if TYPE_CHECKING:
    from tests.integration.attached import AttachedSession
    from tests.support.postgres import PostgresInfo


class Upstream:
    """A table of PostgreSQL and the table that is loaded from it."""

    def __init__(self, session: AttachedSession, postgres: PostgresInfo, columns: str, of_table: str) -> None:
        self.session, self.postgres = session, postgres
        self.name = f"t_{uuid.uuid4().hex[:8]}"
        postgres.run(f"CREATE TABLE {self.name} ({columns})")
        session.run(
            f"CREATE SECRET IF NOT EXISTS pw WITH (backend = 'meta') AS '{PASSWORD}'",
            f"CREATE CONNECTION IF NOT EXISTS pg WITH (type = 'jdbc', jdbc.url = '{postgres.url}', user = 'postgres', "
            "password = SECRET pw)",
            f"CREATE TABLE t ({of_table}) WITH (connector = 'jdbc', connection = pg, table.name = '{self.name}', "
            "refresh_mode = 'FULL_RELOAD')",
        )

    def run(self, statement: str) -> None:
        self.postgres.run(statement.replace("{t}", self.name))

    def refresh(self) -> None:
        assert self.session.sql("REFRESH TABLE t")[0].detail == "REFRESH initiated for table 'public.t'"
        (waited,) = self.session.sql("WAIT TABLE t")
        assert waited.change == "WAITED", waited.detail
