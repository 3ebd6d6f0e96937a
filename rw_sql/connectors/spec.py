"""The spec of a connector, from ``sources/<name>.toml``: its formats, INCLUDE columns and options.

``*`` in an option's key matches one or more parts of a key: ``fields.*.kind`` matches ``fields.v1.kind`` and
``fields.address.street.kind``. A plain key takes precedence over a pattern.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from rw_sql.assets import read_asset
from rw_sql.errors import (
    INVALID_DEFINITION,
    INVALID_PROPERTY,
    MISSING_PROPERTY,
    UNKNOWN_PROPERTY,
    ErrorCode,
    Span,
    SqlError,
    either,
    near_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

OptionType = Literal["text", "integer", "number", "boolean", "duration", "timestamp"]
"""The type of an option's value. In a statement, each value is written as text."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?\s*(Z|[+-]\d\d:?\d\d)?)?", re.IGNORECASE | re.ASCII
)
_UNITS = {
    "ms": 0.001, "milli": 0.001, "millis": 0.001, "millisecond": 0.001, "milliseconds": 0.001,
    "": 1.0, "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hour": 3600.0, "hours": 3600.0, "d": 86400.0, "day": 86400.0, "days": 86400.0,
}  # fmt: skip
_MOST_LISTED = 12

SINK_SUFFIX = ".sink.toml"
"""The suffix of sink specs."""


class OptionError(SqlError):
    """An error in one option; ``key`` is the option's key."""

    def __init__(
        self,
        kind: ErrorCode,
        message: str,
        *,
        key: str,
        hint: str | None = None,
        span: Span | None = None,
        plain_keys: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(kind, message, hint=hint, span=span, plain_keys=plain_keys)
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSpec:
    """One option. ``client`` and ``spark`` are the option's names in the connector's client and in Spark's reader.

    ``java`` describes the equivalent in the Java client, if the equivalent is not just an option with another name. If
    ``is_of_connection`` is true, CREATE CONNECTION accepts the option too. ``connection_key`` is the option's name in
    CREATE CONNECTION, if the two names differ; the spec of the connection's type then defines the option. If
    ``is_alterable`` is true, ALTER SOURCE … CONNECTOR WITH may change the option, as in RisingWave. If ``is_address``
    is true, the part of the URL before ``?`` identifies the target. A change of this part is unsafe, even if the option
    is alterable. ``default_port`` applies to URLs without a port. If ``selects`` is true, the option selects records
    within a split. If ``is_ignored`` is true, the option is accepted but has no effect. ``spellings`` maps other
    spellings to ``choices``. ``also`` are the option's names in other systems, for hints. ``instead`` are the options
    that cannot be set together with this one. ALTER CONNECTION and ALTER … CONNECTOR WITH remove them
    when they set this one.
    """

    key: str
    doc: str
    type: OptionType = "text"
    is_required: bool = False
    default: str | None = None
    is_secret: bool = False
    is_alterable: bool = False
    is_address: bool = False
    default_port: int | None = None
    selects: bool = False
    is_of_connection: bool = False
    connection_key: str | None = None
    is_ignored: bool = False
    client: str | None = None
    spark: str | None = None
    java: str | None = None
    choices: tuple[str, ...] = ()
    spellings: Mapping[str, str] = field(default_factory=dict)
    minimum: float | None = None
    maximum: float | None = None
    also: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()

    @property
    def is_pattern(self) -> bool:
        """True if the key contains ``*``."""
        return "*" in self.key

    def is_default(self, value: str) -> bool:
        """True if the value is the option's default. Always False for durations, because even an explicit default
        may have an effect."""
        if self.default is None or self.type == "duration":
            return False
        fold = self.canonical if self.choices else str
        return fold(value.strip()) == fold(self.default)

    def canonical(self, value: str) -> str:
        """The choice that ``value`` denotes. An invalid value is only stripped and lowercased."""
        return self.spellings.get(text := value.strip().lower(), text)

    def fault(self, value: str) -> str | None:
        """The error in ``value``, as the end of a sentence that begins with the option's name; None for a valid
        value. The text contains ``value`` only if the option is not secret."""
        wanted = self._wanted()
        if self._fits(value):
            return None
        joint = "but is" if self.choices or self.type == "boolean" else "not"
        return f"must be {wanted}" if self.is_secret else f"must be {wanted}, {joint} {quoted(value)}"

    def _wanted(self) -> str:
        if self.choices:
            return either(self.choices)
        words = {
            "text": "a string that is not empty",
            "integer": "a whole number",
            "number": "a number",
            "boolean": "true or false",
            "duration": "a duration such as 10s or 500ms",
            "timestamp": "a time such as 2026-01-31 08:00:00Z",
        }[self.type]
        if self.minimum is not None and self.maximum is not None:
            return f"{words} from {number_text(self.minimum)} to {number_text(self.maximum)}"
        if self.minimum is not None:
            return f"{words}, at least {number_text(self.minimum)}"
        if self.maximum is not None:
            return f"{words}, at most {number_text(self.maximum)}"
        return words

    def _fits(self, value: str) -> bool:
        if self.choices:
            return self.canonical(value) in {choice.lower() for choice in self.choices}
        text = value.strip()
        match self.type:
            case "text":
                return bool(text)
            case "integer":
                return _INTEGER.fullmatch(text) is not None and self._is_in_range(float(text))
            case "number":
                return _NUMBER.fullmatch(text) is not None and self._is_in_range(float(text))
            case "boolean":
                return text.lower() in ("true", "false")
            case "duration":
                return (found := duration_seconds(text)) is not None and self._is_in_range(found)
            case "timestamp":
                return _TIMESTAMP.fullmatch(text) is not None

    def _is_in_range(self, number: float) -> bool:
        return (self.minimum is None or number >= self.minimum) and (self.maximum is None or number <= self.maximum)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncludeSpec:
    """One kind of INCLUDE column: its type in RisingWave's canonical form, and its meaning."""

    kind: str
    type: str
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorSpec:
    """The spec of a connector. ``formats`` maps a FORMAT to its ENCODEs, in upper case.

    ``default_format`` applies to a source without FORMAT … ENCODE; None if every source needs this clause.
    ``connection_kind`` is the type of the connector's connections, if this type differs from the connector's name.
    ``example`` is a script for the generated documentation page. If ``is_batch`` is true, the connector can be used
    only by REFRESH TABLE, which always reads the whole upstream.
    """

    name: str
    doc: str
    is_shareable: bool
    formats: Mapping[str, tuple[str, ...]]
    include: Mapping[str, IncludeSpec]
    options: Mapping[str, OptionSpec]
    default_format: tuple[str, str] | None = None
    notes: str = ""
    example: str = ""
    connection_kind: str | None = None
    is_batch: bool = False
    _patterns: tuple[tuple[re.Pattern[str], OptionSpec], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        patterns = tuple((_compile(option.key), option) for option in self.options.values() if option.is_pattern)
        object.__setattr__(self, "_patterns", patterns)

    def option(self, key: str) -> OptionSpec | None:
        """The option with this key, or with a pattern that matches the key; None if there is no such option."""
        if (found := self.options.get(key)) is not None and not found.is_pattern:
            return found
        return next((option for pattern, option in self._patterns if pattern.fullmatch(key)), None)

    def value(self, options: Mapping[str, str], key: str) -> str | None:
        """The option's value in ``options``, or else its default; None if there is neither."""
        if key in options:
            return options[key]
        found = self.option(key)
        return found.default if found else None

    def near(self, key: str) -> list[str]:
        """The accepted keys most similar to an unknown key, best first. Options' names in other systems count too."""
        wanted = key.lower()
        if known_as := [option.key for option in self.options.values() if wanted in map(str.lower, option.also)]:
            return known_as
        if f"properties.{wanted}" in self.options:
            return [f"properties.{wanted}"]
        return near_names(wanted, filter(None, (_made_alike(option.key, wanted) for option in self.options.values())))

    def include_name(self, kind: str, inner: str | None = None, inner_type: str | None = None) -> str:
        """The name of an INCLUDE column without an alias: ``_rw_kafka_key``, ``_rw_kafka_header_id_bytea``."""
        parts = [part for part in (kind, inner, inner_type) if part]
        return "_".join(["_rw", self.name, *parts]).lower()


def find_option_errors(
    spec: ConnectorSpec,
    options: Mapping[str, str],
    spans: Mapping[str, Span] | None = None,
    value_spans: Mapping[str, Span] | None = None,
) -> tuple[OptionError, ...]:
    """Lists a WITH list's unknown keys, missing keys, invalid values and contradictory options, in this order.

    ``spans`` and ``value_spans`` are the positions of the keys and values in the statement's text.
    """
    places = spans or {}
    return (
        *_unknown(spec, options, places),
        *(
            OptionError(MISSING_PROPERTY, f'missing property "{option.key}"', key=option.key, hint=_how_to_give(option))
            for option in spec.options.values()
            if option.is_required and not option.is_pattern and option.key not in options
        ),
        *_invalid(spec, options, value_spans or places),
        *_exclusive(spec, options, places),
    )


def check_option_values(
    spec: ConnectorSpec,
    options: Mapping[str, str],
    spans: Mapping[str, Span] | None = None,
    value_spans: Mapping[str, Span] | None = None,
) -> None:
    """Raises the first error of a WITH list. See :func:`find_option_errors`."""
    for error in find_option_errors(spec, options, spans, value_spans):
        raise error


def plain_keys(spec: ConnectorSpec, keys: Iterable[str]) -> frozenset[str]:
    """The keys whose values error messages can safely show: the keys of options that are not secret, and unknown
    keys that are similar only to keys of such options."""
    plain = set()
    for key in keys:
        meant = [known] if (known := spec.option(key)) else [spec.option(near) for near in spec.near(key)]
        if meant and not any(option is None or option.is_secret for option in meant):
            plain.add(key)
    return frozenset(plain)


def check_format(
    spec: ConnectorSpec, format: str, encode: str, span: Span | None = None, *, hint: str | None = None
) -> None:
    """Checks that the connector supports FORMAT … ENCODE ….

    Raises SqlError INVALID_DEFINITION. Its hint is ``hint``, or lists the supported FORMATs or ENCODEs.
    """
    encodes = spec.formats.get(format.upper())
    if encodes is None:
        raise SqlError(
            INVALID_DEFINITION,
            f'connector "{spec.name}" does not support format {format.upper()}',
            hint=hint or "write FORMAT " + " or ".join(spec.formats),
            span=span,
        )
    if encode.upper() not in encodes:
        raise SqlError(
            INVALID_DEFINITION,
            f'connector "{spec.name}" does not support format {format.upper()} with encode {encode.upper()}',
            hint=hint or f"FORMAT {format.upper()} takes ENCODE " + ", ".join(encodes),
            span=span,
        )


def check_include(spec: ConnectorSpec, kind: str, span: Span | None = None) -> IncludeSpec:
    """The spec of an INCLUDE column. Raises SqlError INVALID_DEFINITION if the connector does not have this column."""
    found = spec.include.get(kind.lower())
    if found is None:
        raise SqlError(
            INVALID_DEFINITION,
            f'connector "{spec.name}" does not support INCLUDE {kind.lower()}',
            hint="write INCLUDE " + " or ".join(spec.include) if spec.include else "omit INCLUDE",
            span=span,
        )
    return found


def duration_seconds(text: str) -> float | None:
    """The number of seconds in a duration such as ``10s``, ``500ms``, ``1 min`` or ``5`` (seconds); None if the text
    is not a duration."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    unit = _UNITS.get(match[2].lower())
    return None if unit is None else float(match[1]) * unit


def quoted(value: str) -> str:
    """Returns a value in quotes for a message. A long value is shortened."""
    shown = value if len(value) <= 60 else value[:57] + "..."
    return "'" + shown.replace("'", "''").replace("\n", "\\n") + "'"


@cache
def load_sink_spec(name: str) -> ConnectorSpec:
    """A built-in sink connector's spec, from ``sources/<name>.sink.toml``. Raises FileNotFoundError."""
    return parse_spec(read_asset("sources", f"{name}{SINK_SUFFIX}"))


@cache
def load_spec(name: str) -> ConnectorSpec:
    """A built-in connector's spec, from ``sources/<name>.toml``. Raises FileNotFoundError if there is no such file."""
    return parse_spec(read_asset("sources", f"{name}.toml"))


def parse_spec(text: str) -> ConnectorSpec:
    """Parses a spec from TOML text. Third-party connectors call this function. Raises ValueError for an invalid spec.

    If a sink uses the connections of a source connector, ``connection_of`` is this connector's name. The sink accepts
    all options of these connections, but the options in ``ignored_of_connection`` have no effect.
    """
    table = tomllib.loads(text.removeprefix("\ufeff"))
    shared = load_spec(table["connection_of"]).options if "connection_of" in table else {}
    own = {key: _parse_option(key, option) for key, option in table["options"].items()}
    return ConnectorSpec(
        name=table["name"],
        doc=table["doc"],
        notes=table.get("notes", ""),
        example=table.get("example", ""),
        connection_kind=table.get("connection_of", table.get("connection_kind")),
        is_shareable=table.get("shareable", False),
        is_batch=table.get("batch", False),
        formats={name: tuple(encodes) for name, encodes in table.get("formats", {}).items()},
        default_format=(pair[0], pair[1]) if (pair := table.get("default_format")) else None,
        include={
            kind: IncludeSpec(kind=kind, type=column["type"], doc=column["doc"])
            for kind, column in table.get("include", {}).items()
        },
        options=own
        | {
            key: replace(option, is_ignored=option.is_ignored or key in table.get("ignored_of_connection", ()))
            for key, option in shared.items()
            if option.is_of_connection and key not in own
        },
    )


_OPTION_WORDS = frozenset({
    "doc", "type", "required", "default", "secret", "alterable", "connection", "connection_key", "ignored", "client",
    "spark", "java", "choices", "spellings", "minimum", "maximum", "also", "instead", "address", "default_port",
    "selects",
})  # fmt: skip


def _parse_option(key: str, table: dict[str, Any]) -> OptionSpec:
    if strange := set(table) - _OPTION_WORDS:
        raise ValueError(f'option "{key}" has unknown words: {", ".join(sorted(strange))}')
    if table.get("type", "text") not in get_args(OptionType):
        raise ValueError(f'option "{key}" has the unknown type {table["type"]}')
    return OptionSpec(
        key=key,
        doc=table["doc"],
        type=table.get("type", "text"),
        is_required=table.get("required", False),
        default=table.get("default"),
        is_secret=table.get("secret", False),
        is_alterable=table.get("alterable", False),
        is_address=table.get("address", False),
        default_port=table.get("default_port"),
        selects=table.get("selects", False),
        is_of_connection=table.get("connection", False),
        connection_key=table.get("connection_key"),
        is_ignored=table.get("ignored", False),
        client=table.get("client"),
        spark=table.get("spark"),
        java=table.get("java"),
        choices=tuple(table.get("choices", ())),
        spellings=table.get("spellings", {}),
        minimum=table.get("minimum"),
        maximum=table.get("maximum"),
        also=tuple(table.get("also", ())),
        instead=tuple(table.get("instead", ())),
    )


def _unknown(spec: ConnectorSpec, options: Mapping[str, str], spans: Mapping[str, Span]) -> Iterator[OptionError]:
    listed = ", ".join(tuple(spec.options)[:_MOST_LISTED]) + (", …" if len(spec.options) > _MOST_LISTED else "")
    for key in options:
        if spec.option(key) is None:
            near = spec.near(key)
            hint = (
                "did you mean " + " or ".join(f'"{name}"' for name in near) + "?"
                if near
                else f'omit "{key}"; the properties are {listed}'
            )
            yield OptionError(
                UNKNOWN_PROPERTY,
                f'connector "{spec.name}" has no property "{key}"',
                key=key,
                hint=hint,
                span=spans.get(key),
                plain_keys=plain_keys(spec, options),
            )


def _invalid(spec: ConnectorSpec, options: Mapping[str, str], spans: Mapping[str, Span]) -> Iterator[OptionError]:
    for key, value in options.items():
        option = spec.option(key)
        if option is not None and (fault := option.fault(value)) is not None:
            choices = {} if option.is_secret else {choice.lower(): choice for choice in option.choices}
            near = near_names(value.strip().lower(), choices, most=1)
            hint = f"did you mean {quoted(choices[near[0]])}?" if near else f"{key} = {_example(option)}"
            yield OptionError(INVALID_PROPERTY, f'property "{key}" {fault}', key=key, hint=hint, span=spans.get(key))


def _exclusive(spec: ConnectorSpec, options: Mapping[str, str], spans: Mapping[str, Span]) -> Iterator[OptionError]:
    for key in options:
        option = spec.options.get(key)
        group = () if option is None else tuple(sorted((key, *option.instead)))
        given = [each for each in options if each in group]
        if len(given) > 1 and key == given[-1]:
            message = f"can only set one of {', '.join(group)}"
            hint = f"omit {key}, or {given[0]}"
            yield OptionError(INVALID_PROPERTY, message, key=key, hint=hint, span=spans.get(key))


def _how_to_give(option: OptionSpec) -> str:
    return f"add {option.key} = {_example(option)} to WITH: {option.doc}"


def _example(option: OptionSpec) -> str:
    """An example value of the option, as written in WITH."""
    if option.is_secret:
        return f"SECRET {option.key.rsplit('.', 1)[-1]}"
    if option.choices:
        return " or ".join(quoted(choice) for choice in option.choices)
    if option.default is not None and option.type != "text":
        return quoted(option.default)
    least = number_text(option.minimum) if option.minimum is not None else "1"
    return {
        "text": "'…'",
        "integer": f"'{least}'",
        "number": f"'{least}'",
        "boolean": "'true' or 'false'",
        "duration": "'10s'",
        "timestamp": "'2026-01-31 08:00:00Z'",
    }[option.type]


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(r"[^\s]+".join(re.escape(part) for part in pattern.split("*")))


def _made_alike(key: str, wanted: str) -> str | None:
    """``key`` with the middle parts of ``wanted`` in place of ``*``; None if the first parts of the keys differ."""
    if "*" not in key:
        return key
    first, *middle = wanted.split(".")
    last = middle.pop() if middle else ""
    if not middle or not last or first != key.split(".")[0]:
        return None
    return key.replace("*", ".".join(middle))


def number_text(number: float) -> str:
    """A number as text for messages and pages. A whole number has no decimal point."""
    return str(int(number)) if float(number).is_integer() else str(number)
