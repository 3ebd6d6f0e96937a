"""Provides a catalog without objects, for statements that are examined before their warehouse is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.model.parameters import SESSION_PARAMETERS

if TYPE_CHECKING:
    from rw_sql.syntax.statements import Name


class EmptyCatalog:
    """Represents the catalog of a warehouse that does not exist or is not open yet.

    See :class:`rw_sql.syntax.CatalogView`.
    """

    def has_object(self, name: Name) -> bool:
        """Returns False, because there are no objects."""
        return False

    def has_parameter(self, name: str) -> bool:
        """True if a session parameter with this name exists."""
        return name in SESSION_PARAMETERS
