"""A refreshable table in a catalog of dictionaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.model.refresh_states import refresh_of
from tests.plan.tables import table, tables_world

if TYPE_CHECKING:
    from rw_sql.metastore.refresh_records import RefreshRecord
    from tests.plan.canned import CannedWorld

NOW = 1_700_000_000_000
"""The time of the canned world's clock."""


def create_refreshable(*options: str, columns: str = "id INT PRIMARY KEY, name VARCHAR", name: str = "t") -> str:
    """A CREATE TABLE statement over a table of PostgreSQL that is read as a whole."""
    more = "".join(f", {option}" for option in options)
    return (
        f"CREATE TABLE {name} ({columns}) WITH (connector = 'jdbc', jdbc.url = 'jdbc:postgresql://db/shop', "
        f"table.name = 'orders', refresh_mode = 'FULL_RELOAD'{more})"
    )


def refreshable_world(*options: str) -> CannedWorld:
    """A world with the refreshable table ``t``."""
    return tables_world(create_refreshable(*options))


def state(world: CannedWorld, name: str = "t") -> RefreshRecord:
    """The table's refresh state."""
    record = refresh_of(world.snapshot, table(world, name).id)
    assert record is not None
    return record
