"""The position in the log at which a table's changes begin, and the identity of that log. Both values are stored with
the table's progress (:attr:`TableProgress.identity`), in the commit of the rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.connectors.changes import TableProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Changes of the table up to the position ``begin`` are ignored. Up to the position ``columns_from``, changes of
    its columns are ignored, because the snapshot reads all rows after this position. ``file`` is the sequence number
    of the log file that was read last. ``created`` is the time when this file was created, in seconds since 1970, and
    ``server`` is the id of the server that created it. ``prepared`` are the start positions of XA transactions that
    were prepared but have not ended. ``names`` are the names of the table's columns, in the order of the table, if the
    log does not contain the names. ``known_from`` is the position from which on all XA PREPAREs that concern the table
    are known. The changes of a transaction that was prepared before this position may be missing. The value is 0 if no
    changes can be missing."""

    begin: int
    file: int = 0
    created: int = 0
    server: int = 0
    prepared: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    columns_from: int = 0
    known_from: int = 0

    def may_lack(self, committed: int) -> bool:
        """True if changes of the table may be unknown that belong to a transaction that is committed at ``committed``
        and whose XA PREPARE was not read."""
        return bool(self.known_from) and committed > self.begin

    def to_json(self) -> str:
        """The mark as JSON."""
        made = {"begin": self.begin, "file": self.file, "created": self.created, "server": self.server}
        if self.prepared:
            made["prepared"] = list(self.prepared)  # type: ignore[assignment]
        if self.names:
            made["names"] = list(self.names)  # type: ignore[assignment]
        if self.columns_from:
            made["columns_from"] = self.columns_from
        if self.known_from:
            made["known_from"] = self.known_from
        return json.dumps(made)

    @classmethod
    def from_json(cls, text: str) -> Mark:
        """Parses the text that :meth:`to_json` returned."""
        made = json.loads(text)
        return cls(
            begin=made["begin"],
            file=made["file"],
            created=made["created"],
            server=made["server"],
            prepared=tuple(made.get("prepared", ())),
            names=tuple(made.get("names", ())),
            columns_from=made.get("columns_from", 0),
            known_from=made.get("known_from", 0),
        )

    @classmethod
    def of(cls, progress: TableProgress, position: int, end: int, *, has_names: bool = True) -> Mark:
        """The mark of a table whose reader continues at ``position``, while the log ends at ``end``. ``has_names`` is
        true if the log contains the names of columns."""
        # Up to this position, the log may contain the rows of an older table of this name, and the statement that
        # dropped the older table.
        live_from = max(progress.live_from, position)
        if progress.identity is not None:
            mark = cls.from_json(progress.identity)
        elif progress.continues is not None:
            mark = cls.from_json(progress.continues)
            if not has_names and progress.is_repeated and not progress.has_live_tables:
                # A repeated snapshot also removes rows. Rows with earlier columns cannot be read.
                return replace(mark, begin=max(end, position), names=())
            mark = replace(mark, columns_from=max(end, position)) if progress.ignores_columns else mark
        else:
            # The snapshot contains the table's present rows. Earlier events of this name may belong to an older table.
            # The snapshot also contains the rows of transactions that are prepared now, because it waits for their end.
            # Without a snapshot, the reader searches the log for these rows.
            is_done = progress.is_done
            mark = cls(begin=live_from if is_done else max(end, position), known_from=position if is_done else 0)
        return replace(mark, begin=min(mark.begin, live_from)) if progress.has_live_tables else mark
