"""Converts a datagen source's options and columns to a row plan, which describes how to generate each field."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from rw_sql.connectors.base import ENDLESS
from rw_sql.connectors.datagen.rows import INTEGER_LIMITS, FieldPlan, RowPlan
from rw_sql.connectors.spec import OptionError, duration_seconds, quoted
from rw_sql.errors import INVALID_PROPERTY, UNDEFINED_COLUMN, UNSUPPORTED_TYPE, SqlError, near_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.spec import ConnectorSpec

LONGEST_ARRAY = 1000
_KINDS = {
    **dict.fromkeys(INTEGER_LIMITS, "INTEGER"),
    "REAL": "REAL",
    "DOUBLE": "DOUBLE",
    "DOUBLE PRECISION": "DOUBLE",
    "NUMERIC": "NUMERIC",
    "CHARACTER VARYING": "TEXT",
    "CHARACTER": "TEXT",
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ",
}
_NUMBERS = ("INTEGER", "NUMERIC", "REAL", "DOUBLE")


def plan_rows(spec: ConnectorSpec, options: Mapping[str, str], columns: Mapping[str, str] | None) -> RowPlan:
    """The plan of a source's rows. Raises SqlError if the options and the columns do not match.

    A column of type BYTEA contains the whole row and is not a field. If there are no other columns, the names and the
    types of the fields are derived from the options.
    """
    shown = {name: kind for name, kind in (columns or {}).items() if kind != "BYTEA"}
    if shown:
        _check_names(options, shown)
    else:
        shown = _suggested(options)
    fields = tuple(_field(options, name, f"fields.{name}", kind, spec) for name, kind in shown.items())
    rate = rows_per_second(spec, options)
    return RowPlan(
        splits=split_count(spec, options),
        seed=int(spec.value(options, "datagen.seed") or 0),
        fields=fields,
        origin_us=microseconds(spec.value(options, "datagen.origin") or "1970-01-01", "datagen.origin"),
        step_us=1000.0 if rate is None else 1e6 / rate,
        total=_total(options, fields),
    )


def check_total(spec: ConnectorSpec, options: Mapping[str, str], columns: Mapping[str, str]) -> None:
    """Raises OptionError if the type of a column with a sequence has fewer than ``datagen.rows.total`` values.

    The options alone do not show this error, because the number of values in a sequence depends on the type of the
    column.
    """
    key = "datagen.rows.total"
    named, made = plan_rows(spec, options, None).total, plan_rows(spec, options, columns).total
    if key in options and named is not None and made is not None and made < named:
        raise _wrong(key, f"must be at most {made}, because the type of a sequence's column has no more values")


def split_count(spec: ConnectorSpec, options: Mapping[str, str]) -> int:
    """The number of splits, from ``datagen.split.num``."""
    return int(spec.value(options, "datagen.split.num") or 1)


def rows_per_second(spec: ConnectorSpec, options: Mapping[str, str]) -> int | None:
    """The number of rows per second in all splits of the source together; None if all rows are available at once."""
    given = options.get("datagen.rows.per.second")
    if given is not None:
        return int(given)
    return None if "datagen.rows.total" in options else 10


def microseconds(text: str, key: str) -> int:
    """Parses a time and returns microseconds since 1970. A time without a zone counts as UTC. Raises SqlError
    INVALID_PROPERTY."""
    try:
        moment = datetime.datetime.fromisoformat(text.strip().replace(" +", "+").replace(" Z", "Z"))
    except ValueError as error:
        raise _wrong(key, f"must be a time such as 2026-01-31 08:00:00Z, not {quoted(text)}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def _total(options: Mapping[str, str], fields: tuple[FieldPlan, ...]) -> int | None:
    ends = [int(options["datagen.rows.total"])] if "datagen.rows.total" in options else []
    for field in fields:
        if field.is_sequence and field.high is not None:
            ends.append(min(max(0, int((field.high - field.low) // 10**field.scale) + 1), ENDLESS))
        ends += [inner for inner in [_total({}, field.fields)] if inner is not None]
    return min(ends, default=None)


def _check_names(options: Mapping[str, str], columns: Mapping[str, str]) -> None:
    for key in options:
        if not key.startswith("fields."):
            continue
        path = key.split(".")[1:-1]
        if not any(path[: name.count(".") + 1] == name.split(".") for name in columns):
            near = near_names(".".join(path), columns)
            raise OptionError(
                UNDEFINED_COLUMN,
                f'property "{key}" names no column of the source',
                key=key,
                hint=f'did you mean "fields.{near[0]}.{key.rsplit(".", 1)[-1]}"?'
                if near
                else "columns: " + ", ".join(columns),
            )


def _suggested(options: Mapping[str, str]) -> dict[str, str]:
    words: dict[str, dict[str, str]] = {}
    for key, value in options.items():
        if key.startswith("fields."):
            _, *path, word = key.split(".")
            words.setdefault(".".join(path), {})[word] = value
    return {name: _suggested_type(given) for name, given in words.items()}


def _suggested_type(given: Mapping[str, str]) -> str:
    if "length" in given:
        return "CHARACTER VARYING"
    if {"max_past", "max_past_mode", "basetime"} & set(given):
        return "TIMESTAMP"
    numbers = [given[word] for word in ("start", "end", "min", "max") if word in given]
    return "DOUBLE" if any("." in number for number in numbers) else "BIGINT"


def _field(options: Mapping[str, str], name: str, path: str, type_text: str, spec: ConnectorSpec) -> FieldPlan:
    text = type_text.strip()
    if text.endswith("[]"):
        length = int(options.get(f"{path}.length", "3"))
        if length > LONGEST_ARRAY:
            raise _wrong(f"{path}.length", f"must be at most {LONGEST_ARRAY} for an array, not '{length}'")
        element = _field(options, "_", f"{path}._", text[:-2], spec)
        return FieldPlan(
            name=name, path=path, kind="ARRAY", length=length, fields=(element,), null=_null(options, path)
        )
    if text.upper().startswith("STRUCT<"):
        inner = tuple(_field(options, part, f"{path}.{part}", kind, spec) for part, kind in _struct_fields(text[7:-1]))
        return FieldPlan(name=name, path=path, kind="STRUCT", fields=inner, null=_null(options, path))
    bare, arguments = _type_parts(text)
    kind = _KINDS.get(bare)
    if kind is None:
        raise SqlError(
            UNSUPPORTED_TYPE,
            f'connector "datagen" cannot generate values of type {text} (column "{name}")',
            hint="datagen makes "
            + ", ".join(kind for kind in _KINDS if kind != "DOUBLE PRECISION")
            + ", STRUCT and arrays",
        )
    is_sequence = options.get(f"{path}.kind", "random").strip().lower() == "sequence"
    if is_sequence and kind not in _NUMBERS:
        raise _wrong(f"{path}.kind", f"cannot be sequence for a column of type {text}")
    seed = options.get(f"{path}.seed")
    plan = FieldPlan(
        name=name,
        path=path,
        kind=kind,
        is_sequence=is_sequence,
        seed=None if seed is None else int(seed),
        null=_null(options, path),
    )
    if kind in _NUMBERS:
        return _with_range(plan, options, path, bare, arguments)
    if kind == "TEXT":
        return replace(plan, length=_text_length(options, path, arguments))
    if kind in ("DATE", "TIMESTAMP", "TIMESTAMPTZ"):
        return _with_times(plan, options, path, spec)
    return plan


def _with_range(
    plan: FieldPlan, options: Mapping[str, str], path: str, bare: str, arguments: tuple[int, ...]
) -> FieldPlan:
    words = ("start", "end") if plan.is_sequence else ("min", "max")
    low = _number(options, f"{path}.{words[0]}") or Decimal(0)
    high = _number(options, f"{path}.{words[1]}")
    scale = 0
    if plan.kind == "NUMERIC":
        digits = [-int(number.as_tuple().exponent) for number in (low, high) if number is not None]
        scale = arguments[1] if len(arguments) > 1 else (0 if arguments else max(0, *digits))
    elif plan.kind == "INTEGER":
        for word, number in zip(words, (low, high), strict=True):
            if number is not None and number != number.to_integral_value():
                raise _wrong(f"{path}.{word}", f"must be a whole number for a column of type {bare}, not '{number}'")
    limit = _limit(bare, arguments, scale)
    if high is None and (not plan.is_sequence or limit is not None):
        high = limit if plan.is_sequence else min(Decimal(32767), limit or Decimal(32767))
    if limit is not None:
        for word, number in zip(words, (low, high), strict=True):
            if number is not None and not -limit - 1 <= number <= limit:
                raise _wrong(f"{path}.{word}", f"is outside the range of type {bare}: '{number}'")
    if high is not None and low > high:
        raise _wrong(f"{path}.{words[0]}", f"must not be greater than {path}.{words[1]}: '{low}' and '{high}'")
    unit = 10**scale
    is_whole = plan.kind in ("INTEGER", "NUMERIC")
    return replace(
        plan,
        scale=scale,
        low=int(low * unit) if is_whole else float(low),
        high=None if high is None else int(high * unit) if is_whole else float(high),
    )


def _limit(bare: str, arguments: tuple[int, ...], scale: int) -> Decimal | None:
    if bare in INTEGER_LIMITS:
        return Decimal(INTEGER_LIMITS[bare])
    if bare == "NUMERIC":
        # A value has at most 18 digits, because it is generated as a 64-bit number of units of the last digit.
        digits = min(arguments[0] if arguments else 18, 18)
        return (Decimal(10) ** digits - 1) / Decimal(10) ** scale
    return None


def _with_times(plan: FieldPlan, options: Mapping[str, str], path: str, spec: ConnectorSpec) -> FieldPlan:
    past = duration_seconds(options.get(f"{path}.max_past", "1 day")) or 0.0
    base: int | None
    if f"{path}.basetime" in options:
        base = microseconds(options[f"{path}.basetime"], f"{path}.basetime")
    elif options.get(f"{path}.max_past_mode", "absolute").strip().lower() == "relative":
        base = None
    else:
        base = microseconds(spec.value(options, "datagen.origin") or "1970-01-01", "datagen.origin")
    return replace(plan, base_us=base, past_us=int(past * 1e6))


def _text_length(options: Mapping[str, str], path: str, arguments: tuple[int, ...]) -> int:
    given = options.get(f"{path}.length")
    if given is None:
        return min(10, arguments[0]) if arguments else 10
    return min(int(given), arguments[0]) if arguments else int(given)


def _null(options: Mapping[str, str], path: str) -> float:
    return float(options.get(f"{path}.null", "0"))


def _number(options: Mapping[str, str], key: str) -> Decimal | None:
    if key not in options:
        return None
    try:
        return Decimal(options[key].strip())
    except InvalidOperation as error:
        raise _wrong(key, f"must be a number, not {quoted(options[key])}") from error


def _type_parts(text: str) -> tuple[str, tuple[int, ...]]:
    match = re.fullmatch(r"([A-Za-z ]+?)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", text, re.ASCII)
    if match is None:
        return text.upper(), ()
    return match[1].upper(), tuple(int(part) for part in match.groups()[1:] if part)


def _struct_fields(text: str) -> list[tuple[str, str]]:
    """Parses ``a INT, "b c" STRUCT<d INT>`` into names and types."""
    parts, depth, start, is_quoted = [], 0, 0, False
    for position, letter in enumerate(text):
        if letter == '"':
            is_quoted = not is_quoted
        elif not is_quoted:
            depth += (letter in "<(") - (letter in ">)")
            if letter == "," and depth == 0:
                parts.append(text[start:position])
                start = position + 1
    parts.append(text[start:])
    made = []
    for part in (part.strip() for part in parts):
        match = re.match(r'"((?:[^"]|"")*)"\s+|([^\s"]+)\s+', part)
        if match is None:
            continue
        name = match[1].replace('""', '"') if match[1] is not None else match[2]
        made.append((name, part[match.end() :].strip()))
    return made


def _wrong(key: str, what: str) -> OptionError:
    return OptionError(INVALID_PROPERTY, f'property "{key}" {what}', key=key, hint=f"correct {key}, or omit it")
