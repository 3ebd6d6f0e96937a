"""Reads the files of a command as statements: replaces variables, and keeps the position of each statement in its
file."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.cli.interface.masked_statements import masked_statement
from rw_sql.cli.text_input import read_text
from rw_sql.errors import INVALID_OPTION, SqlError
from rw_sql.masking import SECRET_WORDS, masked
from rw_sql.syntax import split_script
from rw_sql.syntax.variables.expand import expand
from rw_sql.syntax.variables.references import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rw_sql.syntax import ScriptStatement
    from rw_sql.syntax.variables.source_map import Expanded

_TELLING = re.compile(SECRET_WORDS, re.IGNORECASE)
_HIDDEN = "*****"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One file of a command. ``name`` is the path of the file; None for standard input."""

    name: str | None
    expanded: Expanded
    parts: tuple[ScriptStatement, ...]

    def place(self, part: ScriptStatement) -> tuple[str | None, int, int]:
        """The file, line and column at which a statement begins. The file may be an included file."""
        origin, span = self.expanded.source(part.start, part.start + len(part.text))
        return origin.file, span.line, span.column


def read_assignments(texts: Iterable[str]) -> dict[str, str]:
    """The variables from ``--var NAME=VALUE``. Raises SqlError INVALID_OPTION."""
    variables = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not NAME.match(name):
            raise SqlError(
                INVALID_OPTION,
                f"--var takes NAME=VALUE: {name!r} is not a valid name"
                if equals
                else f"--var takes NAME=VALUE, not {text!r}",
                hint="a name consists of letters, digits and _: --var topic=orders",
            )
        variables[name] = value
    return variables


def load_scripts(
    files: Iterable[str],
    variables: Mapping[str, str],
    environment: Callable[[str], Mapping[str, str]] | None = None,
) -> tuple[list[Script], SecretHider]:
    """Loads the scripts in ``files`` (``-`` is standard input).

    Variables that a file sets are available in the rest of the file and in the files that follow it.

    ``environment`` returns the variables of a file's environment. If ``environment`` is given, ``:name`` can also refer
    to these variables, and ``${name}`` is replaced too. For ``${name}``, the variables have the values that they have
    at the beginning of the file. The second result is a function that hides the values of variables whose names suggest
    that they are secret. Raises SqlError if a file cannot be read, a variable is not set, or a backslash command is
    wrong.
    """
    scripts = []
    known = dict(variables)
    secrets = set(_secrets(known))
    for path in files:
        name = None if path == "-" else path
        of_file = {**environment(path), **known} if environment is not None else known
        secrets.update(_secrets(of_file))
        braced = of_file if environment is not None else None
        expanded = expand(read_text(path), of_file, read_text, file=name, braced=braced)
        secrets.update(_secrets({key: value for key, value in expanded.settings.items() if value is not None}))
        known = expanded.variables_after(known)
        scripts.append(Script(name=name, expanded=expanded, parts=split_script(expanded.text)))
    return scripts, hiding(secrets)


def _secrets(variables: Mapping[str, str]) -> Iterable[str]:
    return (value for name, value in variables.items() if value and _TELLING.search(name))


def hiding_of(variables: Mapping[str, str]) -> SecretHider:
    """Returns a function that hides the values of all ``variables`` whose names suggest a secret."""
    return hiding(_secrets(variables))


def hiding(secrets: Iterable[str]) -> SecretHider:
    """Returns a function that hides the given secrets and the secrets in statements."""
    # Longer values are replaced first, because a longer value may contain a shorter value.
    known = frozenset(secrets)
    values = sorted({form for secret in known for form in _forms(secret)}, key=len, reverse=True)
    return SecretHider(re.compile("|".join(map(re.escape, values))) if values else None, known)


def hiding_all(hiders: Iterable[SecretHider]) -> SecretHider:
    """Combines several secret hiders. The result hides everything that at least one of them hides."""
    return hiding(secret for hider in hiders for secret in hider.known)


def _forms(secret: str) -> Iterable[str]:
    """The spellings that a value can have inside strings and quoted names, in rw_sql's statements and in Spark's."""
    for form in (secret, secret.replace("\\", "\\\\")):
        yield form
        yield from (form.replace(quote, quote * 2) for quote in "'\"`")
        yield form.replace("'", "\\'")


def _moved(at: int, places: Iterable[tuple[int, int]]) -> int:
    """The offset that corresponds to the offset ``at`` after asterisks have replaced the values at ``places``. An
    offset inside a value becomes an offset inside the asterisks."""
    moved = at
    for start, end in places:
        if start < at:
            moved += min(at - start, len(_HIDDEN)) - (at - start) if at < end else len(_HIDDEN) - (end - start)
    return moved


@dataclass(frozen=True, slots=True)
class SecretHider:
    """Replaces secrets with asterisks. ``known`` are the secret values of variables. ``secrets`` matches these values
    in any quotes; it is None if no variable has a secret value.

    A call of the object hides these values in a text, and also hides the secrets in the statements that the text
    contains.
    """

    secrets: re.Pattern[str] | None
    known: frozenset[str] = frozenset()

    def __call__(self, text: str) -> str:
        return self.values(masked(text))

    def known_in(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Returns the secret values of variables that occur in at least one of the texts."""
        searched = tuple(texts)
        forms = ((secret, hiding((secret,)).secrets) for secret in sorted(self.known))
        return tuple(secret for secret, form in forms if form is not None and any(map(form.search, searched)))

    def statement(self, text: str) -> str:
        """Hides the secrets of one statement, which may be invalid."""
        return self.values(masked_statement(text))

    def error(self, error: SqlError) -> SqlError:
        """Hides the values of variables in an error's message, hint and detail. Also hides these values in the SQL text
        from which the error quotes a line. Returns the error.

        The error's line and column still refer to the text in which the values are not hidden.
        """
        error.message = self.values(error.message)
        error.args = (error.message,)
        error.hint = None if error.hint is None else self.values(error.hint)
        error.detail = None if error.detail is None else self.values(error.detail)
        if error.text is not None and self.secrets is not None:
            places = [(match.start(), match.end()) for match in self.secrets.finditer(error.text)]
            error.text = self.values(error.text)
            if error.span is not None:
                start, end = (_moved(at, places) for at in (error.span.start, error.span.end))
                error.span = replace(error.span, start=start, end=max(end, start + 1))
            if error.statement_range is not None:
                first, last = error.statement_range
                error.statement_range = (_moved(first, places), _moved(last, places))
        return error

    def values(self, text: str) -> str:
        """Hides only the values of variables. This method is for the texts of a SqlError, which do not contain the
        secrets of the error's statement. Such a text may look like an incomplete statement, in which the end of a
        secret cannot be found."""
        return self.secrets.sub(_HIDDEN, text) if self.secrets is not None else text
