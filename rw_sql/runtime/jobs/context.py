"""The shared context of the runtime: the warehouse, its metastore, Spark, and the identity of this process."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.registry import connector_names
from rw_sql.connectors.support.messages import remember_secrets
from rw_sql.connectors.support.private_files import SecretText, private_file
from rw_sql.errors import UNDEFINED_OBJECT, SqlError
from rw_sql.metastore.records import DEFAULT_GROUP, SecretRecord
from rw_sql.metastore.table import create_table
from rw_sql.model.definitions import definition_of
from rw_sql.model.options import source_options
from rw_sql.runtime.decoding.decoder import BUCKET, log_schema, log_statistics
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.delta.lost_logs import require_log
from rw_sql.runtime.delta.table_settings import STATISTICS, TABLE_SETTINGS
from rw_sql.runtime.jobs.applied_epoch import Applied
from rw_sql.runtime.jobs.counters import DecodeErrors, JobFigures
from rw_sql.runtime.jobs.lease import LeaseWatch, is_held, is_owned
from rw_sql.runtime.jobs.store_watch import StoreWatch
from rw_sql.runtime.jobs.wakes import Wakes
from rw_sql.runtime.support.processes import now_ms, this_machine
from rw_sql.runtime.support.secrets import read_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore import Metastore, Snapshot
    from rw_sql.metastore.facts import Lease
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.model.options import PlannedOptions, SecretReference
    from rw_sql.runtime.spark.sessions import SparkSessions
    from rw_sql.runtime.support.warehouse import Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One attached warehouse in this process. ``owner`` is this process's name in the lease.

    ``group`` is the resource group whose jobs this process runs, if it runs any. ``owning`` is set while this process
    runs jobs. During this time, ``applied`` contains the last epoch for which this process has started to change the
    jobs, and ``store`` shows whether this process can write to the warehouse. ``lease_watches`` maps resource groups to
    this process's observations of the groups' leases. ``made`` contains objects that higher-level packages create once
    per warehouse.
    """

    warehouse: Warehouse
    metastore: Metastore
    sessions: SparkSessions
    owner: str
    group: str = DEFAULT_GROUP
    applied: Applied = field(default_factory=Applied)
    owning: threading.Event = field(default_factory=threading.Event)
    decode_errors: DecodeErrors = field(default_factory=DecodeErrors, repr=False, compare=False)
    figures: JobFigures = field(default_factory=JobFigures, repr=False, compare=False)
    store: StoreWatch = field(default_factory=StoreWatch, repr=False, compare=False)
    wakes: Wakes = field(default_factory=Wakes, repr=False, compare=False)
    lease_watches: dict[str, LeaseWatch] = field(default_factory=dict, repr=False, compare=False)
    made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def note_batch(self, job: str, at_ms: int, seconds: float) -> None:
        """Records that a batch of a job ended without an error. Jobs at rest that read the output of this job are
        woken."""
        self.figures.note_batch(job, at_ms, seconds)
        self.wakes.note_batch(job)

    def explains(self, error: Exception) -> bool:
        """True if all writes to the warehouse currently fail, and ``error`` has the same cause. The caller need not log
        the error, because the common cause is logged once."""
        return self.store.explains(error, self.warehouse)

    def has_owner(self, lease: Lease | None = None) -> bool:
        """True if a process runs the jobs: this process, or the holder of ``lease`` (None: the lease of this process's
        group).

        In the owner's own process, the result does not depend on the heartbeat, which may be late. An owner on another
        machine also counts as present while this process observes that the owner renews the lease, because that
        machine's clock may be wrong.
        """
        if self.owning.is_set() and (lease is None or lease.group == self.group):
            return True
        found = lease if lease is not None else self.metastore.jobs.lease(self.group)
        at = now_ms()
        if is_owned(found, now_ms=at):
            return True
        if found is None or found.is_released or found.host == this_machine():
            return False
        watch = self.watch_of(found.group)
        watch.is_renewed(found, at)
        return watch.has_seen_renewal(found)

    def watch_of(self, group: str) -> LeaseWatch:
        """The observation of a group's lease by this process."""
        return self.lease_watches.setdefault(group, LeaseWatch())

    def holds_lease(self) -> bool:
        """Reads the stored lease of this process's group again. Returns True if this process still holds the lease,
        according to :func:`is_held`."""
        lease = self.metastore.jobs.lease(self.group)
        is_own = lease is not None and lease.owner == self.owner
        return is_own and is_held(lease, is_local=self.warehouse.is_local, now_ms=now_ms())

    def is_replaced(self) -> bool:
        """True if the stored lease shows that another process has taken over the jobs of this process's group. After a
        suspension, this process may not have noticed the takeover yet.

        In an object store, this method may use a cached lease that is as old as
        :class:`~rw_sql.metastore.commit_log.Looks` permits.
        """
        lease = self.metastore.jobs.lease(self.group)
        return lease is not None and lease.owner != self.owner and not lease.is_released

    def resolve(
        self, options: PlannedOptions, snapshot: Snapshot, candidates: tuple[SecretRecord, ...] = ()
    ) -> dict[str, str]:
        """The options, with the values of secrets in place of references to secrets. ``candidates`` are secrets that
        replace the secrets with the same ids in ``snapshot``. Raises SqlError if a secret cannot be read."""
        altered = {secret.id: secret for secret in candidates}
        resolved = {key: self._value(value, snapshot, altered) for key, value in options}
        remember_secrets(resolved, connector_names())
        return resolved

    def _value(self, value: str | SecretReference, snapshot: Snapshot, altered: Mapping[int, SecretRecord]) -> str:
        if isinstance(value, str):
            return value
        secret = altered.get(value.id) or snapshot.get(value.id)
        if not isinstance(secret, SecretRecord):
            message = f'secret "{value.name}" does not exist'
            raise SqlError(UNDEFINED_OBJECT, message, hint="SHOW SECRETS lists all secrets")
        text = read_secret(secret)
        return str(private_file(text)) if value.is_file else SecretText(text)

    def options_of(self, source: SourceRecord, snapshot: Snapshot) -> dict[str, str]:
        """A source's options, with the values of secrets in place of references to secrets."""
        return self.resolve(source_options(snapshot, source), snapshot)

    def log_path(self, source: SourceRecord) -> str:
        """The path of a source's log."""
        return self.warehouse.data(source.id, source.generation)

    def ensure_log(self, source: SourceRecord) -> None:
        """Creates a source's log unless it exists. Any process may call this method. Raises StalledError if the log is
        lost, or if it is older than the source's positions."""
        from deltalake import Schema

        # An existing folder is not enough, because a process that died while creating the table may have left a folder
        # without a commit.
        require_log(self.warehouse, self.metastore, source)
        if latest_version(self.warehouse, self.log_path(source)) >= 0:
            return
        create_table(
            self.log_path(source),
            Schema.from_json(log_schema(definition_of(source)).json()),
            {**TABLE_SETTINGS, STATISTICS: ",".join(log_statistics(definition_of(source)))},
            partition_by=[BUCKET],
        )
