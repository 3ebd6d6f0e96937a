"""The Delta sink. It writes to a user's table, and writes each batch exactly once.

A batch's commit carries two application transactions (Delta protocol, "Transaction Identifiers"). The first transaction
fences earlier runs: its name is the sink's identity, and its value is ``run × 2³² + batch + 1``. The second transaction
stores the batch's number as its value: its name consists of the sink's identity and the generation. Delta keeps both
transactions for the lifetime of the table, regardless of log cleanup and other writers, unless a table property limits
the retention of transactions. The sink refuses tables with that property.

``CREATE OR REPLACE TABLE`` keeps all transactions, but not the rows. The commit of a fence therefore carries two more
transactions. The name of the first consists of the sink's identity and the table's id. The name of the second consists
of the sink's identity and a constant text. If a table has the second transaction but not the first transaction with the
table's present id, the table has replaced another table. If only older versions of rw_sql wrote to the table, it has
neither of the two transactions.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS
from rw_sql.connectors.delta.inexact_statistics import without_inexact_min_max
from rw_sql.connectors.delta.known_transactions import KnownTransactions
from rw_sql.connectors.delta.paths import check_path
from rw_sql.connectors.delta.refusals import refused_by_constraints
from rw_sql.connectors.delta.seen_log import SeenLog
from rw_sql.connectors.sink import (
    DELETE,
    UPSERT,
    RefusedRowsError,
    SinkError,
    SinkLook,
    TakenOverError,
    TargetUnfitError,
)
from rw_sql.connectors.spec import OptionError, check_option_values, load_sink_spec
from rw_sql.connectors.support.nullable_schemas import nullable_schema
from rw_sql.connectors.support.query_names import in_query
from rw_sql.connectors.support.s3 import look_at_store
from rw_sql.connectors.support.sink_values import last_per_key, split_by_op
from rw_sql.errors import INVALID_PROPERTY, near_names
from rw_sql.object_stores import one_line
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import deltalake
    import pyarrow as pa
    from deltalake import exceptions

    from rw_sql.connectors.sink import Refusal, SinkShape
    from rw_sql.connectors.spec import ConnectorSpec
else:
    deltalake, exceptions, pa = map(deferred, ("deltalake", "deltalake.exceptions", "pyarrow"))

_LOCATION = re.compile(r"/.+|(s3a?|file)://.+")
_RUN_SHIFT = 32
_ATTEMPTS = 20


def _faults() -> tuple[type[Exception], ...]:
    return exceptions.DeltaError, OSError, pa.ArrowException


_VIOLATED = "failed validation check"
"""A part of delta-rs's error message for rows that violate a constraint."""

_CAST_ERROR = "Cast error: "
"""A part of delta-rs's error message for values that do not fit the table's current types. The class of this exception
varies."""

_REFUSED_COMMIT = re.compile(r"append-only|[Uu]nsupported table features")
"""Matches the text of a CommitFailedError of delta-rs if the table accepts no commit of this sink. With any other text,
the error means a conflict with another writer, and the commit is retried."""

_UNWRITABLE = frozenset(
    {
        "allowColumnDefaults",
        "clustering",
        "domainMetadata",
        "icebergCompatV1",
        "icebergCompatV2",
        "identityColumns",
        "inCommitTimestamp",
        "rowTracking",
        "typeWidening",
    }
)
"""The table features with which delta-rs cannot write to a table."""

_APPEND_ONLY = "delta.appendOnly"
_INDEX = "_rw_index"
_RETENTION = "delta.setTransactionRetentionDuration"
"""The table property that limits how long Delta keeps application transactions. Without this property, Delta keeps the
transactions forever."""


class DeltaSink:
    """See :class:`rw_sql.connectors.sink.SinkConnector`."""

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/deltalake.sink.toml``."""
        return load_sink_spec("deltalake")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent."""
        check_option_values(self.spec, options)
        location = options["location"]
        if _LOCATION.fullmatch(location) is None:
            raise OptionError(
                INVALID_PROPERTY,
                f"property \"location\" must be an absolute path or a URI of s3:// or file://, not '{location}'",
                key="location",
                hint="location = '/path/of/the/table', or 's3://bucket/path'",
            )
        check_path("location", location)
        given = [key for key in options if key.startswith("s3.")]
        if given and not location.startswith("s3"):
            raise OptionError(
                INVALID_PROPERTY,
                f'property "{given[0]}" has no meaning without s3://',
                key=given[0],
                hint=f"omit {given[0]}",
            )

    def check_shape(self, options: Mapping[str, str], shape: SinkShape) -> None:
        """Checks nothing. The rows come from Delta tables, so every type can be stored in another Delta table."""

    def look(
        self, options: Mapping[str, str], shape: SinkShape | None, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SinkLook:
        """Checks that the existing table accepts rows of ``shape``, or that a table can be created. If ``shape`` is
        None, only checks the object store."""
        if shape is None:
            return look_at_store(options, timeout=timeout)
        location = options["location"]
        try:
            table = deltalake.DeltaTable(_uri(location), storage_options=self.storage(options))
            there = {field.name: field for field in table.schema().fields}
            properties = table.metadata().configuration
            features = set(table.protocol().writer_features or ())
        except exceptions.TableNotFoundError:
            return _look_at_folder(location)
        except _faults() as error:
            return SinkLook(error=f"{location}: {one_line(error)}")
        if (retention := _property(properties, _RETENTION)) is not None:
            return SinkLook(
                misfit=f"the table at {location} discards the record of written batches after {retention}, so a batch "
                "could be written twice",
                hint=f"ALTER TABLE {_in_sql(location)} UNSET TBLPROPERTIES ('{_RETENTION}')",
            )
        if shape.type == UPSERT and (_property(properties, _APPEND_ONLY) or "").lower() == "true":
            return SinkLook(
                misfit=f"the table at {location} is append-only, so rows cannot be replaced or deleted",
                hint=f"ALTER TABLE {_in_sql(location)} UNSET TBLPROPERTIES ('{_APPEND_ONLY}'), or type = 'append-only'",
            )
        if unwritable := sorted(features & _UNWRITABLE):
            return SinkLook(
                misfit=f"the table at {location} has table features with which this sink cannot write it: "
                + ", ".join(unwritable),
                hint="set location to another path, where the sink creates the table",
            )
        wanted = {field.name: field for field in deltalake.Schema.from_json(shape.schema).fields}
        for name, field in wanted.items():
            if name not in there:
                near = near_names(name, there)
                return SinkLook(
                    misfit=f'the table at {location} has no column "{name}"',
                    hint=(f'did you mean "{near[0]}"? ' if near else "")
                    + f"ALTER TABLE {_in_sql(location)} ADD COLUMN {in_query(name)} …, or set another location",
                )
            if there[name].type != field.type:
                return SinkLook(
                    misfit=f'column "{name}" of the table at {location} is {_word(there[name])}, not {_word(field)}',
                    hint=f"CAST it in the sink's query: CREATE SINK … AS SELECT CAST({in_query(name)} AS …) …",
                )
        required = [name for name, field in there.items() if name not in wanted and not field.nullable]
        if required:
            return SinkLook(misfit=f'column "{required[0]}" of the table at {location} does not allow NULL')
        return SinkLook()

    def storage(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options of the object store's client."""
        made = {
            option.client: options[option.key]
            for option in self.spec.options.values()
            if option.client is not None and option.key in options
        }
        if made.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            made["AWS_ALLOW_HTTP"] = "true"
        return made

    def open(self, options: Mapping[str, str], shape: SinkShape, identity: str) -> DeltaWriter:
        """Opens the table. Creates the table if the table does not exist."""
        uri, storage = _uri(options["location"]), self.storage(options)
        try:
            table = _made(uri, deltalake.Schema.from_json(nullable_schema(shape.schema)), storage)
        except _faults() as error:
            raise SinkError(f"{options['location']}: {one_line(error)}") from error
        return DeltaWriter(table, shape, identity, storage)

    def marked_batch(self, options: Mapping[str, str], identity: str, generation: int) -> int | None:
        """The number of the last batch in the table; -1 if the table has no batch of this generation. None if no run of
        the sink has fenced the table, or if the table does not exist or was replaced."""
        try:
            table = deltalake.DeltaTable(_uri(options["location"]), storage_options=self.storage(options))
            if table.transaction_version(identity) is None:
                return None
            batch = table.transaction_version(_batches_of(identity, generation))
            if batch is not None and _was_replaced(table, identity, table.transaction_version):
                return None
            return -1 if batch is None else batch
        except exceptions.TableNotFoundError:
            return None
        except _faults() as error:
            raise SinkError(f"{options['location']}: {one_line(error)}") from error


def _batches_of(identity: str, generation: int) -> str:
    """The name of the application transactions that store the batch numbers of a sink's generation."""
    return f"{identity}/{generation}"


def _named_by_id(identity: str, table: deltalake.DeltaTable) -> str:
    """The name of the application transaction that shows that a sink has fenced the table with the present id."""
    return f"{identity}/table/{table.metadata().id}"


def _with_ids(identity: str) -> str:
    """The name of the application transaction that shows that the fences of a sink also write the transaction of
    :func:`_named_by_id`."""
    return f"{identity}/tables"


def _was_replaced(table: deltalake.DeltaTable, identity: str, number_of: Callable[[str], int | None]) -> bool:
    """True if this table has replaced another table that the sink had fenced. ``number_of`` is a function that returns
    the number of the table's last application transaction with a name; None if there is none."""
    has_ids = number_of(_with_ids(identity)) is not None
    return has_ids and number_of(_named_by_id(identity, table)) is None


def _made(uri: str, schema: deltalake.Schema, storage: dict[str, str]) -> deltalake.DeltaTable:
    # ``create`` would read the log of an existing table twice.
    with suppress(exceptions.TableNotFoundError):
        return deltalake.DeltaTable(uri, storage_options=storage)
    try:
        # Retries are off: if two sinks create the table at the same time, a retry of the second sink would give the
        # table another id.
        once = deltalake.CommitProperties(max_commit_retries=0)
        return deltalake.DeltaTable.create(uri, schema, mode="ignore", storage_options=storage, commit_properties=once)
    except exceptions.CommitFailedError:
        return deltalake.DeltaTable(uri, storage_options=storage)


class DeltaWriter:
    """See :class:`rw_sql.connectors.sink.SinkWriter`."""

    def __init__(
        self, table: deltalake.DeltaTable, shape: SinkShape, identity: str, storage: dict[str, str] | None = None
    ) -> None:
        self._table = table
        self._storage = storage or {}
        self._log = SeenLog(table, self._storage)
        self._transactions = KnownTransactions(self._log.read)
        self._shape = shape
        self._identity = identity
        self._run = 0
        self._batches = ""
        self._done = -1
        self._is_cancelled = False
        wanted = deltalake.Schema.from_json(shape.schema)
        self._schema = pa.schema(wanted.to_arrow())

    def fence(self, run: int, generation: int) -> int:
        """Commits an empty append with the run's number. Delta then rejects later commits of earlier runs. Returns the
        number of the generation's last batch in the table; -1 if there is none."""
        self._run = run
        self._batches = _batches_of(self._identity, generation)
        empty = self._schema.empty_table()

        def commit() -> list[deltalake.Transaction]:
            if (seen := self._version(self._identity)) >> _RUN_SHIFT > run:
                raise TakenOverError(seen >> _RUN_SHIFT, run)
            done = self._version(self._batches)
            if done >= 0 and _was_replaced(self._table, self._identity, self._number):
                raise TargetUnfitError(f"the table at {self._table.table_uri} was replaced by another table")
            marks = [
                deltalake.Transaction(self._identity, run << _RUN_SHIFT),
                deltalake.Transaction(_named_by_id(self._identity, self._table), run),
                deltalake.Transaction(_with_ids(self._identity), run),
            ]
            if done >= 0:
                marks.append(deltalake.Transaction(self._batches, done))
            deltalake.write_deltalake(self._table, empty, mode="append", commit_properties=_properties(marks))
            return marks

        self._commit(commit)
        self._done = self._version(self._batches)
        return self._done

    def write(self, rows: pa.Table, batch: int) -> None:
        """Commits the rows and the batch's number in one commit."""
        marks = [
            deltalake.Transaction(self._identity, (self._run << _RUN_SHIFT) + batch + 1),
            deltalake.Transaction(self._batches, batch),
        ]
        self._write_or_refuse(rows, batch, marks)
        self._done = batch

    def accepts_parts(self) -> bool:
        """See :class:`rw_sql.runtime.sinks.part_writer.PartWriter`."""
        return True

    def write_part(self, rows: pa.Table, batch: int) -> None:
        """Commits the rows without the batch's number; see
        :class:`rw_sql.runtime.sinks.part_writer.PartWriter`."""
        # Both this commit and a fence have a transaction with this name. Delta therefore rejects the later one of two
        # concurrent commits.
        marks = [deltalake.Transaction(self._identity, (self._run << _RUN_SHIFT) + self._done + 1)]
        self._write_or_refuse(rows, batch, marks)

    def _write_or_refuse(self, rows: pa.Table, batch: int, marks: list[deltalake.Transaction]) -> None:
        try:
            self._write(rows, batch, marks)
        except SinkError as error:
            if _VIOLATED not in str(error):
                raise
            found = self._refusals(rows)
            raise (RefusedRowsError(found) if found else TargetUnfitError(str(error))) from error

    def _refusals(self, rows: pa.Table) -> list[Refusal]:
        """Returns a refusal for each row that violates a constraint of the table."""
        numbered = rows.append_column(_INDEX, pa.array(range(rows.num_rows), pa.int64()))
        changed, _ = split_by_op(last_per_key(numbered, self._shape.keys), DELETE)
        fitted = changed.select([*self._schema.names, _INDEX]).cast(self._schema.append(pa.field(_INDEX, pa.int64())))
        return refused_by_constraints(self._table, fitted, _INDEX)

    def _write(self, rows: pa.Table, batch: int, marks: list[deltalake.Transaction]) -> None:
        changed, gone = split_by_op(last_per_key(rows, self._shape.keys), DELETE)
        if self._shape.type == UPSERT:
            changed = changed.append_column("_rw_gone", pa.array([False] * changed.num_rows, pa.bool_()))
            gone = gone.append_column("_rw_gone", pa.array([True] * gone.num_rows, pa.bool_()))
            merged = pa.concat_tables([changed, gone]).cast(self._schema.append(pa.field("_rw_gone", pa.bool_())))
            self._commit(lambda: self._merge(merged, marks, batch))
            return
        appended = changed.cast(self._schema)

        def append() -> list[deltalake.Transaction]:
            self._require_turn(batch)
            deltalake.write_deltalake(
                self._table,
                appended,
                mode="append",
                commit_properties=_properties(marks),
                **without_inexact_min_max(self._schema),
            )
            return marks

        self._commit(append)

    def _merge(self, rows: pa.Table, marks: list[deltalake.Transaction], batch: int) -> list[deltalake.Transaction]:
        self._require_turn(batch)
        # The parentheses are needed, because DataFusion's parser binds AND more tightly than IS NOT DISTINCT FROM.
        matched = " AND ".join(f"(t.{_quoted(key)} IS NOT DISTINCT FROM s.{_quoted(key)})" for key in self._shape.keys)
        columns = {_quoted(name): f"s.{_quoted(name)}" for name in self._schema.names}
        (
            self._table.merge(
                rows,
                predicate=matched,
                source_alias="s",
                target_alias="t",
                commit_properties=_properties(marks),
                **without_inexact_min_max(self._schema),
            )
            .when_matched_delete(predicate="s.`_rw_gone`")
            .when_matched_update(updates=columns, predicate="NOT s.`_rw_gone`")
            .when_not_matched_insert(updates=columns, predicate="NOT s.`_rw_gone`")
            .execute()
        )
        return marks

    def _require_turn(self, batch: int) -> None:
        if self._is_cancelled:
            raise SinkError("stopped")
        seen, newest = self._version(self._identity), self._version(self._batches)
        if seen >> _RUN_SHIFT > self._run:
            raise TakenOverError(seen >> _RUN_SHIFT, self._run)
        if seen >> _RUN_SHIFT < self._run or newest < self._done:
            raise TargetUnfitError(f"the table at {self._table.table_uri} was replaced by an older copy of it")
        if newest >= batch:
            raise SinkError(f"batch {batch} is already in the table")

    def _commit(self, act: Callable[[], list[deltalake.Transaction]]) -> None:
        """Runs ``act`` on the table's newest version. Retries if another writer commits at the same time. ``act`` is a
        function that commits, and returns the transactions of its commit."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._advance()
                self._log.require_id(self._table)
                version = self._table.version() + 1
                written = act()
                if self._table.version() == version:
                    self._transactions.add(version, {mark.app_id: mark.version for mark in written})
                self._log.see(self._table)
            except exceptions.CommitFailedError as error:
                if _REFUSED_COMMIT.search(str(error)):
                    raise TargetUnfitError(one_line(error)) from error
                if attempt == _ATTEMPTS:
                    raise SinkError(f"other writers commit to the table too often: {one_line(error)}") from error
            except (exceptions.SchemaMismatchError, exceptions.TableNotFoundError) as error:
                raise TargetUnfitError(one_line(error)) from error
            except Exception as error:  # The error for a value that cannot be cast has no class of its own.
                if _CAST_ERROR in str(error):
                    raise TargetUnfitError(one_line(error)) from error
                if not isinstance(error, _faults()):
                    raise
                raise SinkError(one_line(error)) from error
            else:
                return

    def _advance(self) -> None:
        """Advances the handle to the table's newest version."""
        known = self._log.same_table(self._table)
        newest = self._log.newest(known)
        if newest is not self._table:
            self._transactions.forget()
        self._table = newest

    def _number(self, application: str) -> int | None:
        return self._transactions.number(self._table, application)

    def _version(self, application: str) -> int:
        number = self._number(application)
        return -1 if number is None else number

    def cancel(self) -> None:
        """Prevents further commits of batches."""
        self._is_cancelled = True

    def close(self) -> None:
        """Does nothing, because nothing is open between commits."""


def _properties(marks: list[deltalake.Transaction]) -> deltalake.CommitProperties:
    return deltalake.CommitProperties(max_commit_retries=0, app_transactions=marks)


def _quoted(name: str) -> str:
    """A name with the quotation marks of DataFusion and Spark."""
    return "`" + name.replace("`", "``") + "`"


def _uri(location: str) -> str:
    return "s3://" + location.removeprefix("s3a://") if location.startswith("s3a://") else location


def _in_sql(location: str) -> str:
    """The table's name in a statement for Spark."""
    return "delta.`" + location.replace("`", "``") + "`"


def _property(properties: Mapping[str, str | None], name: str) -> str | None:
    """The value of a table property; None if the property is not set. The name is not case-sensitive."""
    return next((value for key, value in properties.items() if key.casefold() == name.casefold()), None)


def _word(field: Any) -> str:
    kind = field.type
    return str(getattr(kind, "type", kind))


def _look_at_folder(location: str) -> SinkLook:
    from rw_sql.connectors.support.local_folder import look_at_folder

    path = location.removeprefix("file://")
    return look_at_folder(path, must_be_empty=True) if path.startswith("/") else SinkLook()
