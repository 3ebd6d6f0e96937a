"""Resolves the names in expressions: columns, fields of structs, stars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from rw_sql.errors import INVALID_QUERY, UNDEFINED_COLUMN, first_names, near_names
from rw_sql.plan.queries.analysis.data_types import element_of, fields_of, is_array, is_map, is_scalar
from rw_sql.plan.queries.analysis.frames import OPEN, Output, known_names
from rw_sql.plan.queries.analysis.functions import is_without_brackets
from rw_sql.syntax.query import query_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rw_sql.plan.queries.analysis.findings import Column, Report
    from rw_sql.plan.queries.analysis.frames import Attribute, Scope
    from rw_sql.plan.queries.analysis.reading import Text

_LISTED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The names that a query may use. ``relations`` maps the folded name of each relation to the relation's columns
    (None if unknown). ``is_relation`` recognizes further relations, and ``is_function`` recognizes functions that are
    not Spark's.

    ``has_functions`` is False if the query's functions are not functions of Spark and are therefore not checked.
    """

    relations: Mapping[str, Sequence[Column] | None]
    is_relation: Callable[[str], bool] | None
    is_function: Callable[[str], bool] | None
    has_functions: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The meaning of a column's name: an attribute, and the path of struct fields that the name selects from it.

    ``is_outer`` is True if the attribute belongs to an outer query. ``is_output`` is True if the name refers to an
    output column of a select.
    """

    attribute: Attribute
    fields: tuple[str, ...] = ()
    is_outer: bool = False
    is_output: bool = False


class NameChecker:
    """Checks names. ``resolved`` maps the ``id()`` of each column's node to the meaning of the column."""

    def __init__(self, text: Text, known: Known, report: Report) -> None:
        self.text = text
        self.known = known
        self.report = report
        self.resolved: dict[int, Resolved] = {}
        self.unchecked: set[int] = set()
        """The ``id()`` of each column node that cannot be resolved because it may refer to an unknown column of a
        relation."""
        self.texts: list[exp.Literal] = []
        """The string literals whose text equals the name of a column in the literal's scope."""

    def column(self, node: exp.Column, scope: Scope) -> exp.DataType | None:
        """Resolves a column. Returns the type of the column's value, or None if the type is unknown."""
        parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
        names = [part.name.lower() for part in parts]
        if len(parts) < len(node.parts) or "_metadata" in names:
            return None
        for around in _chain(scope):
            parameter = around.parameter(names[0])
            if parameter is not None:
                return self.fields(parameter[1], parts[1:])
        own = True
        for around in _chain(scope):
            found = _find(around, names)
            if found == OPEN:
                self.report.leave()
                self.unchecked.add(id(node))
                return None
            if found is not None and not isinstance(found, str):
                attributes, used, is_output = found
                if len(attributes) > 1:
                    self._ambiguous(parts[:used], attributes)
                    return None
                (attribute,) = attributes
                self.resolved[id(node)] = Resolved(
                    attribute=attribute, fields=tuple(names[used:]), is_outer=not own, is_output=is_output
                )
                return self.fields(attribute.data_type, parts[used:])
            own = False
        if len(parts) > 1 or not is_without_brackets(names[0]):
            self._missing(parts, scope)
        return None

    def text_named_like_column(self, node: exp.Literal, scope: Scope) -> None:
        """Records a string literal if its text equals the name of a column in ``scope``."""
        if node.is_string and any(column.name == node.name for column in scope.frame.visible(node.name.lower())):
            self.texts.append(node)

    def fields(self, kind: exp.DataType | None, parts: Sequence[exp.Identifier]) -> exp.DataType | None:
        """Determines the type of ``value.a.b``. Reports a field that a struct does not have."""
        for part in parts:
            if kind is None:
                return None
            if is_map(kind):
                kind = element_of(kind)
                continue
            is_each = is_array(kind)
            inner = element_of(kind) if is_each else kind
            listed = fields_of(inner)
            if listed is None:
                if inner is not None and is_scalar(inner):
                    self.report.add(
                        self.text.place(part),
                        UNDEFINED_COLUMN,
                        f'"{part.name}" is not a field: the value before it is of type {inner.sql(dialect="spark")}',
                        f"omit .{self.text.written(part)}",
                    )
                return None
            found = [kind for name, kind in listed if name.lower() == part.name.lower()]
            if not found:
                names = [name for name, _ in listed]
                self.report.add(
                    self.text.place(part),
                    UNDEFINED_COLUMN,
                    f'field "{part.name}" does not exist',
                    _near(part.name, names) or f"the fields are {_shown(names)}",
                )
            if len(found) != 1 or is_each:
                return None
            kind = found[0]
        return kind

    def star(self, node: exp.Column | exp.Star, scope: Scope) -> Output:
        """The columns to which ``*`` or ``a.b.*`` expands."""
        star = node.this if isinstance(node, exp.Column) else node
        qualifiers = _identifiers(node)
        if any(star.args.get(name) for name in ("replace", "rename")):
            self.report.leave()
            return Output(is_open=True)
        found = self._qualified_star(qualifiers, scope) if qualifiers else scope.frame.expanded()
        if found.is_open:
            self.report.leave()
        left_out = star.args.get("except_") or star.args.get("except")
        return self._without(found, left_out) if left_out else found

    def _qualified_star(self, qualifiers: list[exp.Identifier], scope: Scope) -> Output:
        names = [part.name.lower() for part in qualifiers]
        for around in _chain(scope):
            if names[-1] in around.frame.relations and len(names) <= 2:
                return around.frame.expanded(names[-1])
            found = around.frame.find(names)
            if found == OPEN:
                return Output(is_open=True)
            if found is not None and not isinstance(found, str):
                attributes, used = found
                if len(attributes) > 1:
                    self._ambiguous(qualifiers[:used], attributes)
                    return Output(is_open=True)
                kind = self.fields(attributes[0].data_type, qualifiers[used:])
                listed = fields_of(kind)
                if listed is None:
                    return Output(is_open=True)
                own = attributes[0]
                return Output([own.moved(name=name, data_type=kind, origin=object()) for name, kind in listed])
        self._missing(qualifiers, scope, is_star=True)
        return Output(is_open=True)

    def _without(self, found: Output, left_out: Sequence[exp.Expr]) -> Output:
        """The columns of a star, except the columns that ``EXCEPT (…)`` lists."""
        gone = set()
        for column in left_out:
            parts = _identifiers(column)
            name = parts[-1].name.lower() if parts else ""
            if not parts or len(parts) > 1:
                self.report.leave()  # a field of a struct, or a column with its relation
                gone.add(name)
                continue
            gone.add(name)
            if not found.is_open and all(attribute.name.lower() != name for attribute in found.columns):
                names = known_names(found.columns)
                self.report.add(
                    self.text.place(parts[0]),
                    UNDEFINED_COLUMN,
                    f'column "{parts[0].name}" does not exist',
                    _near(parts[0].name, names)
                    or (_listed(names, found.columns) if names else f"omit EXCEPT ({parts[0].name})"),
                )
        is_sure = all(len(_identifiers(column)) == 1 for column in left_out)
        return Output(
            [column for column in found.columns if column.name.lower() not in gone], found.is_open or not is_sure
        )

    def _ambiguous(self, parts: Sequence[exp.Identifier], attributes: Sequence[Attribute]) -> None:
        name = self.text.written(parts[-1])
        owners = list(dict.fromkeys(attribute.qualifier for attribute in attributes if attribute.qualifier))
        hint = " or ".join(f"{owner}.{name}" for owner in owners)
        self.report.add(
            self.text.place(parts[-1]),
            INVALID_QUERY,
            f'column "{parts[-1].name}" is ambiguous: {len(attributes)} columns have that name',
            f"write {hint}" if len(owners) > 1 else query_hints.ambiguous(name),
        )

    def _missing(self, parts: Sequence[exp.Identifier], scope: Scope, *, is_star: bool = False) -> None:
        first = parts[0]
        names = [part.name.lower() for part in parts]
        owner = next((around for around in _chain(scope) if names[0] in around.frame.relations), None)
        if owner is not None and len(parts) > 1:
            wrong = parts[1]
            columns = known_names(a for a in owner.frame.attributes if a.qualifier == names[0])
            self.report.add(
                self.text.place(wrong),
                UNDEFINED_COLUMN,
                f'column "{wrong.name}" does not exist in {self.text.written(first)}',
                _near(wrong.name, columns)
                or (
                    f"the columns of {self.text.written(first)} are {_shown(columns)}"
                    if columns
                    else query_hints.unnamed(self.text.written(wrong))
                ),
            )
            return
        relations = list(dict.fromkeys(name for around in _chain(scope) for name in around.frame.relations if name))
        attributes = [a for around in _chain(scope) for a in around.frame.attributes if not a.is_hidden]
        columns = known_names([*attributes, *(column for listed in scope.outputs.values() for column in listed)])
        if len(parts) > 1 or is_star:
            near = _near(first.name, relations + ([] if is_star else columns))
            message = f'"{first.name}" is neither a relation in FROM nor a column'
            hint = f"FROM has {_shown(relations)}" if relations else query_hints.without_from(first.name)
            if len(relations) == 1 and names[0] != relations[0]:
                hint = f"write {relations[0]}.{'*' if is_star else self.text.written(parts[1])}"
            self.report.add(self.text.place(first), UNDEFINED_COLUMN, message, near or hint)
            return
        self.report.add(
            self.text.place(first),
            UNDEFINED_COLUMN,
            f'column "{first.name}" does not exist',
            _near(first.name, columns)
            or (
                _listed(columns, attributes)
                if columns
                else query_hints.unnamed(self.text.written(first))
                if any(around.frame.relations for around in _chain(scope))
                else query_hints.without_from(first.name)
            ),
        )


def _find(scope: Scope, names: list[str]) -> tuple[list[Attribute], int, bool] | str | None:
    """Looks up the folded name ``a.b.c`` in one select. The result is as in :meth:`Frame.find`, with one further item:
    True if the name refers to an output column of the select."""
    outputs = list({id(column.origin): column for column in scope.outputs.get(names[0], ())}.values())
    if outputs and scope.is_output_first and len(names) == 1:
        return outputs, 1, True
    found = scope.frame.find(names)
    if isinstance(found, tuple) and (len(found[0]) == 1 or not outputs):
        return (*found, False)
    if outputs:
        # If several outputs have the name, Spark's choice depends on the clause.
        return (outputs, 1, True) if len(outputs) == 1 else OPEN
    return OPEN if found == OPEN else None


def _chain(scope: Scope) -> Iterable[Scope]:
    around: Scope | None = scope
    while around is not None:
        yield around
        around = around.outer


def _identifiers(node: exp.Expr) -> list[exp.Identifier]:
    """The identifiers in a name such as ``a.b`` or ``a.b.*``."""
    parts = node.parts if isinstance(node, exp.Column) else [node]
    return [part for part in parts if isinstance(part, exp.Identifier)]


def _near(name: str, known: Iterable[str]) -> str | None:
    near = near_names(name, dict.fromkeys(known), most=1) or near_names(name.lower(), dict.fromkeys(known), most=1)
    return f'did you mean "{near[0]}"?' if near else None


def _listed(names: Sequence[str], attributes: Iterable[Attribute]) -> str:
    """Returns the hint that lists ``names``, the names of the columns ``attributes``. (Columns without a name are not
    in ``names``.)"""
    if len(names) > 1:
        return f"the columns are {_shown(names)}"
    return f"the only column {'is' if all(a.name for a in attributes) else 'with a name is'} {_shown(names)}"


def _shown(names: Sequence[str]) -> str:
    return first_names(names, _LISTED)
