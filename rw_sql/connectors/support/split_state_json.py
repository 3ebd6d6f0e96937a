"""Encodes and decodes the states of splits as JSON. All connectors whose positions are numbers use the format
``{"offset": 42, …}``.

``offset`` is the offset of the next record to read. ``cluster``, ``incarnation`` and ``term`` are present only if they
are known. A number alone is accepted as a state with only an offset.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.spec import quoted
from rw_sql.errors import INVALID_SPLIT_STATE, SqlError

MAX_OFFSET = 2**63 - 1
_BARE = re.compile(r"\s*[+-]?[0-9]+\s*")
_KEYS = frozenset({"cluster", "incarnation", "offset", "term"})
# A source may have thousands of splits whose states differ only in the offset. The offset is therefore the last member
# of the JSON, and the text before it is encoded and decoded only once.
_OFFSET_LAST = re.compile(r'(\{.*"offset":)(0|[1-9][0-9]{0,17})\}', re.DOTALL)
_OFFSET_LAST_NUMBER = "0}"
_KEPT = 256
_LONGEST = 200


def encode_state(state: SplitState) -> str:
    """Encodes a state as JSON without spaces. ``offset`` is the last member."""
    return f"{_before_offset(state.cluster, state.incarnation, state.term)}{state.offset}}}"


@lru_cache(maxsize=_KEPT)
def _before_offset(cluster: str | None, incarnation: str | None, term: int | None) -> str:
    fields = {"cluster": cluster, "incarnation": incarnation, "term": term}
    known = {name: value for name, value in fields.items() if value is not None}
    body = json.dumps({**known, "offset": 0}, separators=(",", ":"), ensure_ascii=False)
    return body.removesuffix(_OFFSET_LAST_NUMBER)


def decode_state(split: str, text: str, most: int = MAX_OFFSET) -> SplitState:
    """Decodes a state from JSON or from a number alone. Raises SqlError INVALID_SPLIT_STATE with the reason.

    ``most`` is the greatest valid offset.
    """
    if (canonical := _OFFSET_LAST.fullmatch(text)) is not None and (
        life := _identity_before_offset(canonical[1])
    ) is not None:
        cluster, incarnation, term = life
        return SplitState(split=split, offset=int(canonical[2]), cluster=cluster, incarnation=incarnation, term=term)
    return _decode_any(split, text, most)


@lru_cache(maxsize=_KEPT)
def _identity_before_offset(text: str) -> tuple[str | None, str | None, int | None] | None:
    """Parses the cluster, the incarnation and the term from the part of a state's JSON that precedes the offset.

    Returns None if ``text`` does not have this form."""
    try:
        state = _decode_any("", text + _OFFSET_LAST_NUMBER)
    except SqlError:
        return None
    return state.cluster, state.incarnation, state.term


def _decode_any(split: str, text: str, most: int = MAX_OFFSET) -> SplitState:
    if _BARE.fullmatch(text):
        is_short = len(text) < _LONGEST
        return SplitState(split=split, offset=_offset(split, int(text.strip()) if is_short else most + 1, most))
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(split, f"{quoted(text)} is neither a number nor JSON") from error
    if not isinstance(fields, dict):
        raise _invalid(split, f"{quoted(text)} is not an object with an offset")
    if not fields.keys() <= _KEYS:
        strange = min(set(fields) - _KEYS)
        raise _invalid(split, f"it has no field {quoted(strange)}; its fields are offset, cluster, incarnation")
    if "offset" not in fields:
        raise _invalid(split, 'the field "offset" is missing')
    return SplitState(
        split=split,
        offset=_offset(split, fields["offset"], most),
        cluster=_text(split, fields, "cluster"),
        incarnation=_text(split, fields, "incarnation"),
        term=_term(split, fields.get("term")),
    )


def _term(split: str, value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise _invalid(split, 'the field "term" is not a whole number')
    return value


def _offset(split: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _invalid(split, f"the offset {quoted(str(value))} is not a whole number")
    if value < 0:
        raise _invalid(split, f"the offset {value} is negative")
    if value > most:
        raise _invalid(split, f"the offset is greater than {most}, the greatest possible offset")
    return value


def _text(split: str, fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise _invalid(split, f'the field "{name}" is not a string')
    return value


def _invalid(split: str, what: str) -> SqlError:
    return SqlError(
        INVALID_SPLIT_STATE,
        f'invalid state of split "{split}": {what}',
        hint="give the offset of the next record to read, as a number",
    )
