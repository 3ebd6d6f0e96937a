"""The postgres-cdc connector: reads the changes to a database's tables from one replication slot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS, Upstream, UpstreamSplit
from rw_sql.connectors.change_base import ChangeBase, check_root_certificate
from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.postgres_cdc import peek, server, setup, tables, validation
from rw_sql.connectors.postgres_cdc.connection import connect, lsn_number, lsn_text, unreachable
from rw_sql.connectors.postgres_cdc.server import check_slot, is_lost, other_server, read_facts
from rw_sql.connectors.spec import OptionError, check_option_values, load_spec
from rw_sql.connectors.support import split_state_json
from rw_sql.errors import INVALID_PROPERTY
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import psycopg

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.changes import ChangeCount, Lack, Prepared, UpstreamTable
    from rw_sql.connectors.postgres_cdc.reader import PostgresReader
    from rw_sql.connectors.slot_details import SlotDetails
    from rw_sql.connectors.spec import ConnectorSpec
else:
    psycopg = deferred("psycopg")

_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
_LONGEST_NAME = 63
_LAG_SECONDS = 2.0
"""The longest time, in seconds, that SHOW SOURCE SPLITS takes to find the commit time of the next transaction."""


class PostgresCdcConnector(ChangeBase):
    """See :class:`rw_sql.connectors.base.Connector` and :class:`rw_sql.connectors.changes.ChangeConnector`.

    A source has one split, the database. The offsets of the split are positions of the server's log (LSN) as numbers.
    An offset has the same meaning for all slots of a server.
    """

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/postgres-cdc.toml``."""
        return load_spec("postgres-cdc")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent."""
        check_option_values(self.spec, options)
        slot, publication = options.get("slot.name"), options.get("publication.name")
        if slot is not None and not _SLOT_NAME.fullmatch(slot):
            raise OptionError(
                INVALID_PROPERTY,
                'property "slot.name" must be up to 63 lower-case letters, digits and underscores',
                key="slot.name",
                hint=f"slot.name = '{re.sub(r'[^a-z0-9_]', '_', slot.lower())[:_LONGEST_NAME]}'",
            )
        if publication is not None and len(publication.encode()) > _LONGEST_NAME:
            raise OptionError(
                INVALID_PROPERTY,
                'property "publication.name" must have at most 63 bytes',
                key="publication.name",
                hint="give a shorter name: PostgreSQL would cut it off",
            )
        check_root_certificate(
            options, "add ssl.root.cert = '/path/to/ca.pem', or 'system' for the certificates of this machine"
        )

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The id of the only split: the value of ``database.name``."""
        return (options["database.name"],)

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """The database as one split, from the slot's acknowledged position (0 if there is no slot) to the end of the
        server's log.

        If the slot is lost, the beginning of the split equals the end of the split. If another program has created the
        slot, the result contains an error.
        """
        try:
            facts = read_facts(options, timeout)
            has_lost = is_lost(facts)
            if facts.slot is not None and not has_lost:
                check_slot(facts, options)
        except CaptureError as error:
            return Upstream(error=error.message)
        database = options["database.name"]
        split = UpstreamSplit(
            split=database,
            start=facts.end if has_lost else 0 if facts.slot is None else facts.slot.acknowledged or 0,
            end=facts.end,
            cluster=facts.cluster,
            incarnation=facts.incarnation,
        )
        return Upstream(splits={database: split}, cluster=facts.cluster)

    def decode_state(self, split: str, text: str) -> SplitState:
        """Decodes a state from JSON, a bare number, or PostgreSQL's text of a position, ``0/16B3748``."""
        written = text.strip().strip('"')
        if _LSN.fullmatch(written):
            return split_state_json.decode_state(split, str(lsn_number(written)))
        return split_state_json.decode_state(split, text)

    def show_position(self, position: int) -> str:
        """A position in PostgreSQL's notation."""
        return lsn_text(position)

    def explain_other(self, before: SplitState, now: UpstreamSplit) -> str:
        """Returns the reason why the slot is missing: a promoted, restored or re-created server does not have the slots
        of the old server."""
        why = other_server(before.cluster, now.cluster) or (
            "the database was dropped and created again" if before.incarnation != now.incarnation else "it is the same"
        )
        return f"{why}; the slot exists only if it was created on this server"

    def filled_in(self, options: Mapping[str, str], unique: str) -> dict[str, str]:
        """The options, with generated names for the slot and the publication if the options do not contain these
        names."""
        word = re.sub(r"[^a-z0-9_]", "_", unique.lower())
        names = {
            "slot.name": f"rw_cdc_{word}"[:_LONGEST_NAME],
            "publication.name": f"rw_publication_{word}"[:_LONGEST_NAME],
        }
        return names | dict(options)

    def change_reader(self, options: Mapping[str, str]) -> PostgresReader:
        """A reader for one run."""
        # NumPy and Arrow are not needed to check a script.
        from rw_sql.connectors.postgres_cdc.reader import PostgresReader

        return PostgresReader(options)

    def describe_table(
        self, options: Mapping[str, str], table: str, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> UpstreamTable:
        """The columns and the key of a table."""
        try:
            with connect(options, timeout) as connection:
                return tables.describe(connection, table)
        except psycopg.Error as error:
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

    def owns_publication(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> bool | None:
        """True if the source created the publication; None if the publication does not exist and may be created."""
        return setup.owns_publication(options, timeout)

    def prepare(
        self,
        options: Mapping[str, str],
        tables: Sequence[str],
        *,
        awaits_publication: bool = False,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Prepared:
        """Creates the slot and the publication if they are missing."""
        return setup.prepare(options, tables, timeout, awaits_publication=awaits_publication)

    def release(
        self,
        options: Mapping[str, str],
        *,
        slot: bool,
        publication: bool,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> tuple[str, ...]:
        """Drops the slot and the publication."""
        return setup.release(options, slot=slot, publication=publication, timeout=timeout)

    def slot_details(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SlotDetails | None:
        """The current state of the slot."""
        return read_facts(options, timeout).slot

    def check_position(
        self, options: Mapping[str, str], position: SplitState, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> None:
        """Raises CaptureError if the slot does not have all changes after ``position``."""
        server.check_position(read_facts(options, timeout), options, position)

    def slot_removal(self, options: Mapping[str, str]) -> str | None:
        """The call of ``pg_drop_replication_slot``."""
        return setup.slot_removal(options["slot.name"])

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
        """Counts the changes in the slot between two positions, to all tables of the publication. Returns None while a
        reader uses the slot."""
        return peek.count_changes(options, start, end, timeout, only_first=only_first)

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """The position before the first transaction in the slot that was committed at or after ``milliseconds``.

        Raises CaptureError.
        """
        facts = read_facts(options, timeout)
        acknowledged = check_slot(facts, options).acknowledged or 0
        if milliseconds >= facts.now_ms:
            return dict.fromkeys(splits, facts.end)
        return dict.fromkeys(splits, peek.first_at(options, milliseconds, acknowledged, timeout))

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """The time of the first transaction after the position, if the server reports this time quickly enough."""
        found = {split: peek.next_commit(options, position, _LAG_SECONDS) for split, position in offsets.items()}
        return {split: at for split, at in found.items() if at is not None}
