"""The mysql-cdc connector: reads changes to tables of MySQL and MariaDB from the binary log."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS, SplitState, Upstream, UpstreamSplit
from rw_sql.connectors.change_base import ChangeBase, check_root_certificate
from rw_sql.connectors.changes import CaptureError, Prepared
from rw_sql.connectors.mysql_cdc import positions, search, server, tables, validation
from rw_sql.connectors.mysql_cdc.connection import connect, databases_of, unreachable
from rw_sql.connectors.mysql_cdc.server import details, other_server, read_facts
from rw_sql.connectors.spec import OptionError, check_option_values, load_spec
from rw_sql.connectors.support import split_state_json
from rw_sql.errors import INVALID_PROPERTY, UPSTREAM_MISSING
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pymysql

    from rw_sql.connectors.changes import ChangeCount, Lack, UpstreamTable
    from rw_sql.connectors.mysql_cdc.reader import MysqlReader
    from rw_sql.connectors.slot_details import SlotDetails
    from rw_sql.connectors.spec import ConnectorSpec
else:
    pymysql = deferred("pymysql")

_TEXT = re.compile(r"[^{\s]*[0-9]+:[0-9]+(\+[0-9]+)?")
_LEAST_ID = 1 << 30
_LAG_SECONDS = 2.0
"""The longest time, in seconds, that SHOW SOURCE SPLITS takes to find the commit time of the next transaction."""


class MysqlCdcConnector(ChangeBase):
    """See :class:`rw_sql.connectors.base.Connector` and :class:`rw_sql.connectors.changes.ChangeConnector`.

    A source has one split, the databases of ``database.name``. The offsets of the split are positions of the server's
    binary log as numbers (:mod:`rw_sql.connectors.mysql_cdc.positions`).
    """

    passed_text = "the server has purged its log up to"
    kept_text = "the server removes its log after some time, even if it has not been read"
    positions_count_bytes = False
    table_prefix = ("database", "shop")
    table_quotes = '`"'

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/mysql-cdc.toml``."""
        return load_spec("mysql-cdc")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent."""
        check_option_values(self.spec, options)
        if "database.name" in options and not databases_of(options):
            raise OptionError(
                INVALID_PROPERTY,
                'property "database.name" must name a database, or several with commas',
                key="database.name",
                hint="database.name = 'shop'",
            )
        check_root_certificate(options, "add ssl.root.cert = '/path/to/ca.pem'")

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The id of the only split: the value of ``database.name``."""
        return (options["database.name"],)

    def start_offset(self, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]) -> int:
        """Returns the end of the log, because the tables' snapshots deliver earlier rows."""
        return split.end

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """The only split, from the start of the oldest log file to the end of the log."""
        try:
            facts = read_facts(options, timeout)
        except CaptureError as error:
            return Upstream(error=error.message)
        split = options["database.name"]
        found = UpstreamSplit(
            split=split,
            start=facts.start,
            end=facts.end,
            cluster=facts.cluster,
            slack=positions.STEPS - 1,
            files=facts.files,
        )
        return Upstream(splits={split: found}, cluster=facts.cluster)

    def decode_state(self, split: str, text: str) -> SplitState:
        """Decodes a state from JSON, a bare number, or a file and a position, ``mysql-bin.000003:1234``."""
        written = text.strip().strip('"')
        if _TEXT.fullmatch(written) and (number := positions.parse(written)) is not None:
            return split_state_json.decode_state(split, str(number))
        return split_state_json.decode_state(split, text)

    def show_position(self, position: int) -> str:
        """A position as ``000003:1234``."""
        return positions.shown(position)

    def explain_other(self, before: SplitState, now: UpstreamSplit) -> str:
        """Returns a clause that names the identities of the two servers."""
        return other_server(before.cluster or "", now.cluster or "")

    def filled_in(self, options: Mapping[str, str], unique: str) -> dict[str, str]:
        """Returns the options, with a number for ``server.id`` if this option is missing. The server uses this number
        to distinguish this reader from the server's replicas."""
        return {"server.id": str(_LEAST_ID | (zlib.crc32(unique.encode()) % _LEAST_ID))} | dict(options)

    def change_reader(self, options: Mapping[str, str]) -> MysqlReader:
        """A reader for one run."""
        # NumPy and Arrow are not needed to check a script.
        from rw_sql.connectors.mysql_cdc.reader import MysqlReader

        return MysqlReader(options)

    def describe_table(
        self, options: Mapping[str, str], table: str, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> UpstreamTable:
        """The columns and the key of a table."""
        try:
            with connect(options, timeout) as connection:
                return tables.describe(connection, options, table)
        except pymysql.Error as error:
            raise unreachable(error, options) from error

    def find_lacks(
        self,
        options: Mapping[str, str],
        tables: Mapping[str, Mapping[str, str] | None],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> tuple[Lack, ...]:
        """The requirements that the server does not meet, each with the statement that solves the problem."""
        return validation.find_lacks(options, tables, timeout)

    def prepare(
        self,
        options: Mapping[str, str],
        tables: Sequence[str],
        *,
        awaits_publication: bool = False,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Prepared:
        """Creates nothing on the server. Raises CaptureError if the server has no binary log."""
        facts = read_facts(options, timeout)
        if not facts.logs:
            raise CaptureError(
                UPSTREAM_MISSING,
                "MySQL doesn't enable binlog",
                hint="set log_bin = ON in the server's configuration, then restart it",
            )
        state = SplitState(split=options["database.name"], offset=facts.end, cluster=facts.cluster)
        return Prepared(state=state, made_slot=False, made_publication=False, end=facts.end)

    def release(
        self,
        options: Mapping[str, str],
        *,
        slot: bool,
        publication: bool,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> tuple[str, ...]:
        """Does nothing, because the connector has created nothing on the server."""
        return ()

    def slot_details(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SlotDetails | None:
        """The current state of the server's log."""
        return details(read_facts(options, timeout))

    def check_position(
        self, options: Mapping[str, str], position: SplitState, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> None:
        """Raises CaptureError if the server's log does not have all changes after ``position``."""
        server.check_position(read_facts(options, timeout), position)

    def count_changes(
        self,
        options: Mapping[str, str],
        start: int,
        end: int,
        tables: Collection[str],
        *,
        only_first: bool = False,
        includes_earlier: bool = True,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> ChangeCount | None:
        """Counts the changes in the server's log between two positions. The numbers are lower limits if the server does
        not send this part of the log within ``timeout`` seconds."""
        return search.count_changes(
            options, start, end, tables, timeout, only_first=only_first, includes_earlier=includes_earlier
        )

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """The position before the first transaction in the server's log that was committed in the second of
        ``milliseconds`` or later.

        Raises CaptureError.
        """
        return dict.fromkeys(splits, search.first_at(options, milliseconds, timeout))

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """The time of the first transaction after the position, if the server sends this transaction quickly enough.
        The transaction may have changed other tables than those of the source."""
        found = {split: search.next_time(options, position, _LAG_SECONDS) for split, position in offsets.items()}
        return {split: at for split, at in found.items() if at is not None}
