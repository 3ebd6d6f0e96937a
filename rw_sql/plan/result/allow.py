"""What a statement's ALLOW must name before a yes counts that was given beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rw_sql.plan.result.plan import SplitPreview


def predicted_words(splits: Iterable[SplitPreview]) -> tuple[str, ...]:
    """Those of GAPS and DUPLICATES that these splits are counted to come to, at most or exactly.

    A verdict UNKNOWN asks for none: where offsets say nothing of each other, nothing was predicted.
    """
    rows = tuple(splits)
    comes = (("GAPS", any(row.gaps for row in rows)), ("DUPLICATES", any(row.duplicates for row in rows)))
    return tuple(word for word, is_there in comes if is_there)


def unallowed_words(splits: Iterable[SplitPreview], allow: Collection[str]) -> tuple[str, ...]:
    """The words that are predicted and that ALLOW does not name."""
    return tuple(word for word in predicted_words(splits) if word not in allow)
