"""The inspector for commands about foreign checkpoints: files and brokers only, no Spark, no warehouse."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from rw_sql.connectors.registry import connector
from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.metastore import Snapshot
from rw_sql.metastore.records import PutObject, SecretRecord
from rw_sql.plan.ports.catalog import ReadClock, ReadFile, run_plan
from rw_sql.plan.ports.checkpoints import CheckpointRequest
from rw_sql.plan.ports.upstreams import FindOffsetsAt, FindSparseTopics, LookAtUpstream, ReadGroupOffsets
from rw_sql.plan.result.steps import after
from rw_sql.runtime.control.checkpoint_folders import answer_checkpoint
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.secrets import read_secret
from rw_sql.runtime.support.text_files import read_text_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.ports.catalog import Asking, Request

T = TypeVar("T")


def secrets_of_environment(variables: Iterable[str]) -> Snapshot:
    """A catalog that contains only secrets, each with its value in the environment variable of the same name."""
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
class CheckpointWorld:
    """Answers the requests of planning a statement about checkpoints. ``snapshot`` has the secrets that it may
    reference."""

    snapshot: Snapshot = field(default_factory=Snapshot, repr=False)

    def run(self, asking: Asking[T]) -> T:
        """Runs a lowering and returns its result."""
        return run_plan(asking, self._answer)

    def _answer(self, request: Request) -> object:
        match request:
            case LookAtUpstream():
                return connector(request.connector).look(self._resolved(request.options))
            case FindSparseTopics():
                return dict(connector(request.connector).sparse_topics(self._resolved(request.options)))
            case FindOffsetsAt():
                kind = connector(request.connector)
                return dict(kind.offsets_at(self._resolved(request.options), request.milliseconds, request.splits))
            case ReadGroupOffsets():
                options = self._resolved(request.options)
                return connector(request.connector).group_offsets(options, request.group, request.splits)
            case ReadFile(path=path):
                return read_text_file(path)
            case ReadClock():
                return now_ms()
            case _ if isinstance(request, CheckpointRequest):
                return answer_checkpoint(request)
            case _:
                raise SqlError(
                    NOT_SUPPORTED,
                    "this needs a warehouse, and rw-sql checkpoint has none",
                    hint="run INJECT CHECKPOINT OFFSETS in rw-sql shell or rw-sql run",
                )

    def _resolved(self, options: PlannedOptions) -> dict[str, str]:
        made = {}
        for key, value in options:
            if isinstance(value, str):
                made[key] = value
                continue
            secret = self.snapshot.get(value.id)
            if not isinstance(secret, SecretRecord):
                raise TypeError(f"no secret has id {value.id}")
            made[key] = read_secret(secret)
        return made
