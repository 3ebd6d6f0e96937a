"""Builds the error for a secret whose definition in the folder differs from its definition in the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import CANNOT_REPLACE, first_names
from rw_sql.model.object_lookup import spoken
from rw_sql.plan.deploy.folder import DefinitionError
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SecretRecord
    from rw_sql.plan.deploy.folder import FolderObject

_MOST_USERS = 8
"""The maximum number of objects that the error names as users of the secret."""


def fixed_secret(then: Snapshot, wanted: FolderObject, record: SecretRecord, why: str) -> DefinitionError:
    """The error for a secret whose definition in the folder differs from its definition in the catalog. A deployment
    does not drop the secret and create it again, because this would also drop every object that uses the secret."""
    users = [f"{spoken(user.kind)} {user.name}" for user in then.dependents_of(record.id)]
    other = sql_name(record.name + "_2")
    hint = (
        f"write CREATE SECRET {other} WITH (…) in the folder instead, and SECRET {other} in the objects that use the "
        f"secret: {first_names(users, _MOST_USERS)}"
        if users
        else f"no object uses it: DROP SECRET {sql_name(record.name)}, then run the same command again"
    )
    if record.backend == "meta":
        hint += (
            f"; to change only its value, omit the secret from the folder, and ALTER SECRET {sql_name(record.name)} "
            "AS '…'"
        )
    return DefinitionError(
        wanted,
        CANNOT_REPLACE,
        f'secret "{record.name}" at {wanted.place} differs from the secret in the warehouse: {why}',
        hint=hint,
    )
