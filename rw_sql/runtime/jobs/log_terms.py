"""Checks that the upstream's log has not lost records that a source has read from it.

If a log has lost records, it continues with other records at the same offsets, in a later term. In Kafka, the term is
the leader epoch, which grows with each change of a partition's leader. Each commit stores the terms of its positions.
At its start and for each batch, a run compares these terms with the upstream's terms. A newer term upstream does not
prove a loss, because every change of the leader starts a term. Therefore, if the upstream's term is newer, the run
sends a request to find out whether the upstream's log has lost records before the position. A backfill compares the
terms in its history with the upstream's terms in the same way, before it reads a chunk and before it commits the chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState, TermConnector
from rw_sql.runtime.support.failures import StalledError, cause_line
from rw_sql.syntax.lexing.identifiers import literal, sql_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Connector, UpstreamSplit

DIVERGED = "DIVERGED"
"""The first word of the stall reason of a source whose upstream has lost records that were read."""

_MOST_NAMED = 8


@dataclass(slots=True)
class LogTerms:
    """The terms of one run of a source's reader. ``known`` maps each split to the term in which the split's log had the
    records before the run's position. A split is absent if its term is not known."""

    name: str
    kind: TermConnector
    options: Mapping[str, str]
    known: dict[str, int]

    @staticmethod
    def open(
        name: str,
        kind: Connector,
        options: Mapping[str, str],
        states: Mapping[str, SplitState],
        upstream: Mapping[str, UpstreamSplit],
    ) -> LogTerms | None:
        """The terms of a run that begins at the positions ``states``; None for a connector without terms.

        Raises StalledError if the log of a split has lost records that were read, or if the upstream does not respond.
        """
        if not isinstance(kind, TermConnector):
            return None
        stored = {split: state.term for split, state in states.items() if state.term is not None}
        seen = {split: found.term for split in states if (found := upstream.get(split)) and found.term is not None}
        terms = LogTerms(name=name, kind=kind, options=options, known=stored)
        terms._require({split: states[split].offset for split, term in seen.items() if _is_newer(stored, split, term)})
        terms._note(seen)
        return terms

    def note_fetched(
        self, ranges: Mapping[str, tuple[int, int]], terms: Mapping[str, int], ends: Mapping[str, int]
    ) -> dict[str, tuple[int, int]]:
        """Checks a fetched batch. For each split with records, ``terms`` has the greatest term of the split's records,
        and ``ends`` has the offset after the split's last record. Raises StalledError in the same cases as
        :meth:`open`.

        Returns the ranges that may end with offsets without a record. :meth:`require_read` must check these ranges
        before the commit. A record's term proves only that the log of this term contains the offsets up to this record.
        A transaction's marker and an aborted or compacted record occupy offsets too, so the offsets after the last
        record of a range may belong to a later term.

        If a log loses records while the batch is fetched, the fetch itself fails.
        """
        self._require({split: ranges[split][0] for split, term in terms.items() if _is_newer(self.known, split, term)})
        self._note(terms)
        return {
            split: (start, end)
            for split, (start, end) in ranges.items()
            if split in self.known and (split not in terms or ends.get(split, start) < end)
        }

    def require_read(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Checks the ranges that :meth:`note_fetched` has returned. Must be called after the ranges were read and
        before the batch is committed.

        Raises StalledError in the same cases as :meth:`open`, and if the log may have lost records while the batch was
        read. If only a loss during this reading is possible, the batch must be read again.
        """
        try:
            now = self.kind.terms(self.options, tuple(ranges))
        except OSError as error:
            raise _silent(error) from error
        newer = [split for split, term in now.items() if _is_newer(self.known, split, term)]
        self._require({split: ranges[split][0] for split in newer})
        if again := self._diverged({split: ranges[split][1] for split in newer}):
            raise StalledError(f"{', '.join(sorted(again)[:_MOST_NAMED])}: another leader was elected; reading again")
        self._note(now)

    def _note(self, terms: Mapping[str, int]) -> None:
        for split, term in terms.items():
            self.known[split] = max(term, self.known.get(split, term))

    def _require(self, positions: Mapping[str, int]) -> None:
        lost = self._diverged(positions)
        if not lost:
            return
        shown = sorted(lost)[:_MOST_NAMED]
        more = f" and {len(lost) - len(shown)} more" if len(lost) > len(shown) else ""
        named = ", ".join(f"{split} at {positions[split]}" for split in shown)
        cuts = ", ".join(str(lost[split]) for split in shown)
        raise StalledError(
            f"{DIVERGED} {named}{more}: the log was cut at {cuts} and has other records from there on; "
            f"to read them: PAUSE SOURCE {sql_name(self.name)}; {self._inject(shown, lost)}; "
            f"RESUME SOURCE {sql_name(self.name)}; to skip those before the position, the "
            f"second statement is {self._inject(shown, positions)}",
            is_final=True,
        )

    def _inject(self, splits: list[str], offsets: Mapping[str, int]) -> str:
        pairs = ", ".join(f"{literal(split)} = {offsets[split]}" for split in splits)
        return f"INJECT SOURCE OFFSETS {sql_name(self.name)} VALUES ({pairs})"

    def _diverged(self, positions: Mapping[str, int]) -> Mapping[str, int]:
        states = {
            split: SplitState(split=split, offset=offset, term=self.known[split])
            for split, offset in positions.items()
            if split in self.known
        }
        try:
            return self.kind.diverged(self.options, states) if states else {}
        except OSError as error:
            raise _silent(error) from error


def _is_newer(known: Mapping[str, int], split: str, term: int) -> bool:
    return term > known.get(split, term)


def _silent(error: OSError) -> StalledError:
    return StalledError(f"UNREACHABLE {cause_line(str(error))}")
