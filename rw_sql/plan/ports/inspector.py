"""Defines the interface through which a lowering reads the facts that neither the statement nor the catalog contains.

The methods of an inspector have no side effects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import OperationRecord
    from rw_sql.plan.ports.checkpoints import CheckpointPort
    from rw_sql.plan.ports.jobs import JobPort
    from rw_sql.plan.ports.positions import PositionPort
    from rw_sql.plan.ports.queries import QueryPort
    from rw_sql.plan.ports.rewinds import RewindPort
    from rw_sql.plan.ports.secrets import SecretPort
    from rw_sql.plan.ports.tables import TablePort
    from rw_sql.plan.ports.upstreams import UpstreamPort


class Inspector(Protocol):
    """Reads facts about upstreams, readers and jobs for one lowering.

    Each call reads the current state. The state of an upstream is an exception: the inspector requests it once, and
    later calls return the same state.

    A method raises SqlError if it cannot determine its result.
    """

    def after(self, snapshot: Snapshot) -> Inspector:
        """Returns an inspector that uses ``snapshot`` as the catalog. The snapshot may include the effects of
        uncommitted statements.

        If a source is paused in ``snapshot`` but not yet in the committed catalog, its reader counts as stopped.
        """
        ...

    @property
    def upstreams(self) -> UpstreamPort:
        """The port for the upstreams of sources, and for the targets of sinks."""
        ...

    @property
    def positions(self) -> PositionPort:
        """The port for the positions of readers."""
        ...

    @property
    def jobs(self) -> JobPort:
        """The port for the state of the jobs."""
        ...

    @property
    def tables(self) -> TablePort:
        """The port for the tables that store logs and views, and for the tables in Spark."""
        ...

    @property
    def queries(self) -> QueryPort:
        """The port for Spark's analysis of queries."""
        ...

    @property
    def checkpoints(self) -> CheckpointPort:
        """The port for foreign checkpoints, which are the checkpoints of jobs that rw_sql does not run."""
        ...

    @property
    def rewinds(self) -> RewindPort:
        """The port for rewind points."""
        ...

    @property
    def secrets(self) -> SecretPort:
        """The port for secrets. None of its methods returns a secret's value."""
        ...

    def clock(self) -> int:
        """The current time, in milliseconds since 1970."""
        ...

    def file_text(self, path: str) -> str:
        """Returns the text of a file that the statement names."""
        ...

    def operations(
        self, *, is_unsafe: bool | None = None, object_name: str | None = None, since: int | None = None
    ) -> tuple[OperationRecord, ...]:
        """Returns operations from the table ``operations`` of the catalog, with the latest operation first.

        Each parameter limits the result, unless it is None. ``is_unsafe`` selects unsafe or safe operations,
        ``object_name`` selects the operations on one object, and ``since`` is the lowest epoch to return.
        """
        ...
