"""The inspector for the command ``rw-sql checkpoint``, whose statements read and change checkpoints of queries that
rw_sql does not run.

The inspector reads files and upstreams, and needs neither Spark nor a warehouse.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.metastore import Snapshot
from rw_sql.metastore.records import PutObject, SecretRecord
from rw_sql.plan.result.steps import after
from rw_sql.runtime.control.checkpoint_folders import CheckpointFolders
from rw_sql.runtime.control.upstreams import Upstreams
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.secrets import read_secret
from rw_sql.runtime.support.text_files import read_text_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore.records import OperationRecord
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.ports.jobs import JobPort
    from rw_sql.plan.ports.positions import PositionPort
    from rw_sql.plan.ports.queries import QueryPort
    from rw_sql.plan.ports.rewinds import RewindPort
    from rw_sql.plan.ports.secrets import SecretPort
    from rw_sql.plan.ports.tables import TablePort


def secrets_of_environment(variables: Iterable[str]) -> Snapshot:
    """A catalog that contains one secret for each name in ``variables``. The value of a secret is the value of the
    environment variable with the secret's name."""
    changes = tuple(
        PutObject(
            record=SecretRecord(
                id=number,
                name=variable,
                definition=f"CREATE SECRET \"{variable}\" WITH (backend = 'env', name = '{variable}')",
                backend="env",
            )
        )
        for number, variable in enumerate(dict.fromkeys(variables), 1)
    )
    return after(Snapshot(), changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInspector:
    """Implements the inspector (see :mod:`rw_sql.plan.ports`) for statements about checkpoints.

    ``snapshot`` contains the secrets that the statements may reference.

    The ports that need a warehouse raise SqlError NOT_SUPPORTED.
    """

    snapshot: Snapshot = field(default_factory=Snapshot, repr=False)

    def after(self, snapshot: Snapshot) -> CheckpointInspector:
        return replace(self, snapshot=snapshot)

    @property
    def upstreams(self) -> Upstreams:
        # The state of the upstream is not cached: each call sends a new request.
        return Upstreams(self._resolved, {}, lambda _: False)

    @property
    def checkpoints(self) -> CheckpointFolders:
        return CheckpointFolders()

    def clock(self) -> int:
        return now_ms()

    def file_text(self, path: str) -> str:
        return read_text_file(path)

    @property
    def positions(self) -> PositionPort:
        raise _needs_warehouse()

    @property
    def jobs(self) -> JobPort:
        raise _needs_warehouse()

    @property
    def tables(self) -> TablePort:
        raise _needs_warehouse()

    @property
    def queries(self) -> QueryPort:
        raise _needs_warehouse()

    @property
    def rewinds(self) -> RewindPort:
        raise _needs_warehouse()

    @property
    def secrets(self) -> SecretPort:
        raise _needs_warehouse()

    def operations(
        self, *, is_unsafe: bool | None = None, object_name: str | None = None, since: int | None = None
    ) -> tuple[OperationRecord, ...]:
        raise _needs_warehouse()

    def _resolved(self, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = ()) -> dict[str, str]:
        made = {}
        altered = {secret.id: secret for secret in candidates}
        for key, value in options:
            if isinstance(value, str):
                made[key] = value
                continue
            secret = altered.get(value.id) or self.snapshot.get(value.id)
            if not isinstance(secret, SecretRecord):
                raise TypeError(f"no secret has id {value.id}")
            made[key] = read_secret(secret)
        return made


def _needs_warehouse() -> SqlError:
    return SqlError(
        NOT_SUPPORTED,
        "this needs a warehouse, and rw-sql checkpoint has none",
        hint="run INJECT CHECKPOINT OFFSETS in rw-sql shell or rw-sql run",
    )
