"""The words that a statement's ALLOW must contain so that a confirmation in advance is valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rw_sql.plan.result.plan import SplitPreview


def predicted_words(splits: Iterable[SplitPreview]) -> tuple[str, ...]:
    """The words, GAPS and DUPLICATES, that the verdicts on these splits predict, exactly or as an upper limit.

    The verdict UNKNOWN predicts neither, because the old and the new offset cannot be compared.
    """
    rows = tuple(splits)
    comes = (("GAPS", any(row.gaps for row in rows)), ("DUPLICATES", any(row.duplicates for row in rows)))
    return tuple(word for word, is_there in comes if is_there)


def unallowed_words(splits: Iterable[SplitPreview], allow: Collection[str]) -> tuple[str, ...]:
    """The predicted words that are missing from ALLOW."""
    return tuple(word for word in predicted_words(splits) if word not in allow)
