"""Determines the columns that a FROM clause provides, and looks up the names in the select's expressions among these
columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlglot import exp


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    """A column that expressions can name. Two attributes with the same ``origin`` are one column under two names.

    ``qualifier`` is the folded name of the column's relation. ``is_hidden`` is True for the right one of two columns
    that USING or NATURAL merges. A query can use a hidden column only with its qualifier.
    """

    name: str
    qualifier: str
    data_type: exp.DataType | None
    origin: object
    is_hidden: bool = False

    def moved(self, **changes: object) -> Attribute:
        """Returns a copy of the attribute in which some properties are replaced."""
        values = {name: getattr(self, name) for name in ("name", "qualifier", "data_type", "origin", "is_hidden")}
        return Attribute(**(values | changes))


class Unknown:
    """The origin of a column that a query names although no relation has it. A finding already reports the missing
    column, and no hint suggests its name."""


def is_unknown(attribute: Attribute) -> bool:
    """True for a column that no relation has."""
    return isinstance(attribute.origin, Unknown)


def known_names(attributes: Iterable[Attribute]) -> list[str]:
    """Returns the distinct names of the attributes that exist. Columns without a name are left out."""
    return list(dict.fromkeys(a.name for a in attributes if a.name and not is_unknown(a)))


@dataclass(slots=True)
class Output:
    """The columns of a query or relation.

    ``is_open`` is True if there may be unknown columns besides ``columns``. The unknown columns may also be between the
    known columns.

    A column without a name has the name ``""``. ``is_missing`` is True if the query names a relation that does not
    exist.
    """

    columns: list[Attribute] = field(default_factory=list)
    is_open: bool = False
    is_missing: bool = False

    def read_as(self, qualifier: str) -> Output:
        """Returns the columns for use in an outer query. Each origin is replaced with a new origin. Columns that shared
        an origin still share one afterwards."""
        origins: dict[int, object] = {}
        return Output(
            [
                Attribute(
                    column.name,
                    qualifier,
                    column.data_type,
                    origins.setdefault(id(column.origin), Unknown() if is_unknown(column) else object()),
                )
                for column in self.columns
            ],
            self.is_open,
            self.is_missing,
        )


OPEN = "open"
"""The result of looking up a name that may refer to an unknown column."""


class Frame:
    """The columns that a FROM clause provides, in their order, and the names of the relations in the clause."""

    __slots__ = ("_by_name", "attributes", "is_open", "is_unsure", "relations")

    def __init__(self) -> None:
        self.attributes: list[Attribute] = []
        self.relations: dict[str, bool] = {}
        """For each relation, by folded name: whether the relation may have unknown columns."""
        self.is_open = False
        self.is_unsure = False
        """True if a relation that exists may have unknown columns."""
        self._by_name: dict[str, list[Attribute]] | None = None

    def add(self, output: Output, qualifier: str) -> None:
        """Adds the columns of a relation. ``qualifier`` is the folded name of the relation."""
        self.attributes += output.columns
        self.relations[qualifier] = self.relations.get(qualifier, False) or output.is_open
        self.is_open |= output.is_open
        self.is_unsure |= output.is_open and not output.is_missing
        self._by_name = None

    def merge(self, other: Frame) -> None:
        """Adds the relations and columns of another frame."""
        self.replace([*self.attributes, *other.attributes])
        for qualifier, is_open in other.relations.items():
            self.relations[qualifier] = self.relations.get(qualifier, False) or is_open
        self.is_open |= other.is_open
        self.is_unsure |= other.is_unsure

    def replace(self, attributes: Iterable[Attribute]) -> None:
        """Replaces the columns and keeps the relations."""
        self.attributes = list(attributes)
        self._by_name = None

    def named(self, name: str) -> list[Attribute]:
        """The attributes with the given folded name, including hidden attributes."""
        if self._by_name is None:
            self._by_name = {}
            for attribute in self.attributes:
                self._by_name.setdefault(attribute.name.lower(), []).append(attribute)
        return self._by_name.get(name, [])

    def visible(self, name: str) -> list[Attribute]:
        """The attributes to which an unqualified folded name may refer, with one attribute for each origin."""
        return _distinct(attribute for attribute in self.named(name) if not attribute.is_hidden)

    def find(self, parts: Sequence[str]) -> tuple[list[Attribute], int] | str | None:
        """Returns the attributes to which the folded name ``a.b.c`` may refer. Also returns how many parts of the name,
        counted from its beginning, name the column; the later parts name fields.

        Returns OPEN if the name may refer to an unknown column. Returns None if the name does not refer to any column.
        """
        if len(parts) > 1:
            for used in (2, 3):
                if len(parts) < used:
                    break
                found = _distinct(a for a in self.named(parts[used - 1]) if a.qualifier == parts[used - 2])
                if found:
                    return found, used
            if self.relations.get(parts[0]):
                return OPEN
        found = self.visible(parts[0])
        if found:
            return found, 1
        # If some columns are unknown, ``a.b`` may also be a field of an unknown column that has the same name as
        # relation ``a``.
        is_of_known = len(parts) > 1 and self.relations.get(parts[0]) is False
        return OPEN if (self.is_unsure if is_of_known else self.is_open) else None

    def expanded(self, qualifier: str | None = None) -> Output:
        """The columns of ``*``, or of ``qualifier.*``."""
        if qualifier is None:
            return Output([a for a in self.attributes if not a.is_hidden], self.is_open)
        own = [a for a in self.attributes if a.qualifier == qualifier]
        return Output(sorted(own, key=lambda a: not a.is_hidden), self.relations.get(qualifier, False))


def _distinct(attributes: Iterable[Attribute]) -> list[Attribute]:
    return list({id(attribute.origin): attribute for attribute in attributes}.values())


class Scope:
    """The names that an expression in a select may use: the columns of the select's FROM clause, the select's output
    names, and the names of outer queries."""

    __slots__ = ("frame", "has_aggregate", "is_output_first", "outer", "outputs", "parameters", "windows")

    def __init__(self, frame: Frame, outer: Scope | None) -> None:
        self.frame = frame
        self.outer = outer
        self.outputs: dict[str, list[Attribute]] = {}
        self.is_output_first = False
        self.has_aggregate = False
        self.parameters: list[tuple[str, exp.DataType | None]] = []
        """The parameters of the enclosing lambdas, with their types. The parameters of the innermost lambda are
        last."""
        self.windows: dict[str, object] | None = None

    def parameter(self, name: str) -> tuple[str, exp.DataType | None] | None:
        """The parameter of an enclosing lambda with the given folded name, and the parameter's type; None if there is
        no such parameter."""
        return next((found for found in reversed(self.parameters) if found[0] == name), None)

    def with_outputs(self, columns: Iterable[Attribute], *, first: bool) -> Scope:
        """The scope of a clause that may also use the output names of the select."""
        scope = Scope(self.frame, self.outer)
        scope.is_output_first = first
        scope.windows = self.windows
        for column in columns:
            if column.name:
                scope.outputs.setdefault(column.name.lower(), []).append(column)
        return scope
