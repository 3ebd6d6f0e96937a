"""A Delta table as a source of appended rows. The table is the only split of the source. An offset is a version of the
table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS, Stretch, Upstream, UpstreamSplit
from rw_sql.connectors.delta.commits import TableCommit, commit_times, read_commit
from rw_sql.connectors.delta.paths import check_path
from rw_sql.connectors.ranged import Encoding, RangedConnector
from rw_sql.connectors.spec import OptionError, check_option_values, load_spec
from rw_sql.errors import INVALID_PROPERTY, OFFSET_OUT_OF_RANGE, UPSTREAM_MISSING, SqlError
from rw_sql.object_stores import one_line
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import deltalake
    import pyarrow as pa
    from deltalake import exceptions
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.spec import ConnectorSpec
else:
    deltalake, exceptions = deferred("deltalake"), deferred("deltalake.exceptions")

PATH = "delta.path"
SKIP_CHANGES = "delta.skip_change_commits"
MOST_VERSIONS = 100
"""The maximum number of commits in one batch."""


class DeltaConnector(RangedConnector):
    """The connector for a Delta table. Offset 0 denotes all rows that the table has at the first read. Any other offset
    is the version of a commit."""

    has_small_batches = False

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/delta.toml``."""
        return load_spec("delta")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the path means the same table in every process. For example, a local path must be absolute."""
        check_option_values(self.spec, options)
        path = options[PATH].strip()
        if not path.startswith("/") and not urlsplit(path).scheme:
            raise OptionError(
                INVALID_PROPERTY,
                f"property \"{PATH}\" must be an absolute path or a URI, not '{path}'",
                key=PATH,
                hint="give a path that begins with /, because other processes have other working directories",
            )
        check_path(PATH, path)

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """The table as one split. The split begins at the offset 0 and ends after the table's newest version."""
        path = _path(options)
        cluster = f"delta:{path}"
        try:
            table = deltalake.DeltaTable(path)
            split = UpstreamSplit(
                split=_split(path),
                start=0,
                end=table.version() + 1,
                cluster=cluster,
                incarnation=str(table.metadata().id),
            )
        except exceptions.TableNotFoundError:
            return Upstream(error=f"no Delta table at {path}")
        except (exceptions.DeltaError, OSError) as error:
            return Upstream(error=f"{path}: {one_line(error)}")
        return Upstream(splits={split.split: split}, cluster=cluster)

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """At a position above 0, returns at most MOST_VERSIONS unread versions, and only versions before the first one
        that changed existing rows. At the position 0, returns all versions, which one batch must read.

        Raises SqlError if the first unread version changed existing rows.
        """
        upstream = self.look(options)
        if upstream.error is not None:
            raise OSError(upstream.error)
        found = []
        for split, seen in upstream.splits.items():
            state = positions.get(split)
            if state is None or state.offset >= seen.end:
                continue
            if state.offset == 0:
                found.append(Stretch(split=split, start=0, end=seen.end, is_whole=True))
                continue
            end = state.offset
            for commit in self._commits(options, state.offset, min(seen.end, state.offset + MOST_VERSIONS)):
                if commit.changes and end == commit.version == state.offset:
                    raise _refused(split, commit)
                if commit.changes:
                    break
                end = commit.version + 1
            found.append(Stretch(split=split, start=state.offset, end=end))
        return tuple(found)

    def _commits(self, options: Mapping[str, str], start: int, end: int) -> Iterator[TableCommit]:
        """The commits of the versions ``[start, end)``.

        If the option ``delta.skip_change_commits`` is ``true``, a commit that changes existing rows counts as empty.
        """
        path = _path(options)
        skips = (options.get(SKIP_CHANGES) or "false").strip().lower() == "true"
        for version in range(start, end):
            commit = read_commit(path, version)
            if commit is None:
                raise SqlError(
                    UPSTREAM_MISSING,
                    f"EXPIRED {_split(path)}: the commit of version {version} was removed from the table's log",
                    hint=f"INJECT SOURCE OFFSETS … VALUES ('{_split(path)}' = 0) reads the current rows",
                )
            yield TableCommit(version=version) if commit.changes and skips else commit

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """The first version committed at or after ``milliseconds``. For a commit that does not contain its time, the
        time of the next commit is used. Therefore, a commit may be read although it is too early, but no commit is
        skipped. Raises SqlError OFFSET_OUT_OF_RANGE if the table's log may have lost versions after that time."""
        path = _path(options)
        newest = deltalake.DeltaTable(path).version()
        # The table's own history omits commits without a time, and then gives wrong versions to other commits.
        times = commit_times(path, newest)
        oldest = min(times, default=newest + 1)
        later = (version for version, at in times.items() if at is not None and at >= milliseconds)
        first = min(later, default=newest + 1)
        while first > oldest and times[first - 1] is None:
            first -= 1
        at_ms = times.get(oldest)
        if 0 < oldest == first and (at_ms is None or at_ms > milliseconds):
            name = _split(path)
            when = (
                "has no time in the log"
                if at_ms is None
                else f"was committed at {datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(' ', 'milliseconds')}"
            )
            raise SqlError(
                OFFSET_OUT_OF_RANGE,
                f"the log of {name} no longer has all versions since that time: its oldest version is {oldest} and "
                f"{when}",
                hint=f"INJECT SOURCE OFFSETS SOURCE_NAME VALUES ('{name}' = 0) ALLOW DUPLICATES reads all rows that "
                f"the table has; VALUES ('{name}' = {oldest}) reads the rows that the existing versions appended",
            )
        return dict.fromkeys(splits, first)

    def sparse_topics(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, str]:
        """Returns the source's only topic and the reason: its offsets are versions of the table, and do not count
        records."""
        return {"": "offsets are versions of the table"}

    def logged_records(self, options: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]) -> int | None:
        """The number of rows that the commits in the range appended, according to the table's log. Returns None if a
        commit in the range does not contain its number of rows. Also returns None for a range that begins at 0, because
        such a range contains all rows of the table."""
        (start, end) = next(iter(ranges.values()), (0, 0))
        if start == 0:
            return None
        total = 0
        for commit in self._commits(options, start, end):
            for file in commit.appended:
                if file.rows is None:
                    return None
                total += file.rows
        return total

    def read_batch(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
        *,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
        encoding: Encoding | None = None,
        lives: Mapping[str, str | None] | None = None,
    ) -> DataFrame:
        """Reads the rows that the commits in the range appended. If the range begins at 0, reads all rows of the table
        as of the last version in the range."""
        from rw_sql.connectors.delta import reader as delta_reader

        path = _path(options)
        known = next(iter((lives or {}).values()), None)
        if known is not None and str(deltalake.DeltaTable(path).metadata().id) != known:
            raise OSError(f"RECREATED {_split(path)}: the table was deleted and created again")
        (start, end) = next(iter(ranges.values()), (0, 0))
        commits = tuple(self._commits(options, start, end)) if start > 0 else ()
        bad = next((commit for commit in commits if commit.changes), None)
        if bad is not None:
            raise _refused(_split(path), bad)
        row = (encoding or Encoding()).row
        return delta_reader.read(spark, path, _split(path), row, commits=commits, upto=end - 1 if start == 0 else None)

    def read_snapshot(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        encode: str = "NATIVE",
        encode_options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """The rows of the current table. See :class:`rw_sql.connectors.snapshots.SnapshotReader`."""
        from rw_sql.connectors.delta import reader as delta_reader

        path = _path(options)
        return delta_reader.snapshot(spark, path, columns, deltalake.DeltaTable(path).version())

    def read_arrow(
        self, options: Mapping[str, str], columns: Mapping[str, pa.DataType], *, most_rows: int, most_bytes: int
    ) -> pa.Table | None:
        """All rows of the current table; None if the table is too large or cannot be read with Arrow. See
        :class:`rw_sql.connectors.snapshots.ArrowReader`."""
        from rw_sql.connectors.delta.arrow_rows import rows_of

        return rows_of(_path(options), columns, most_rows=most_rows, most_bytes=most_bytes)

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """The id of the only split if ``written`` is ``0`` or empty; otherwise ``written``."""
        return _split(_path(options)) if written.strip() in ("", "0") else written


def _path(options: Mapping[str, str]) -> str:
    return options[PATH].strip().rstrip("/")


def _split(path: str) -> str:
    return path.rpartition("/")[2]


def _refused(split: str, commit: TableCommit) -> SqlError:
    return SqlError(
        UPSTREAM_MISSING,
        f"version {commit.version} of {split} changes existing rows ({commit.changes}): to continue after it, "
        f"INJECT SOURCE OFFSETS … VALUES ('{split}' = {commit.version + 1}), or set {SKIP_CHANGES} = 'true'",
        hint="a source only appends rows; a table with refresh_mode = 'FULL_RELOAD' reads the current rows",
    )
