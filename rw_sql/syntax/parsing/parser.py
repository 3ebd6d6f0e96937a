"""Parses tokens into a statement. The parser runs the LALR automaton, and classifies each token according to the
terminals that the grammar accepts at that point.

The automaton's state decides whether a word is a keyword or a name, and whether free text (a query, an expression, an
option key) is cut out. Therefore, a word is a keyword only where the grammar expects that keyword, and a text such as
``secret = secret secret`` is valid.
"""

from __future__ import annotations

from typing import Any

from rw_sql.errors import TOO_COMPLEX, SqlError
from rw_sql.syntax.lexing.identifiers import RESERVED
from rw_sql.syntax.lexing.tokens import END, NUMBER, PUNCTUATION, QUOTED, STRING, WORD, Token, found
from rw_sql.syntax.parsing.actions import RULES
from rw_sql.syntax.parsing.joined_tokens import CAPTURE
from rw_sql.syntax.parsing.lalr_tables import SIGNS, Reduction, Tables, tables
from rw_sql.syntax.parsing.syntax_errors import syntax_error

MOST_STACKED = 300
"""The maximum number of symbols on the parser's stack. A type that is nested about seventy levels deep reaches this
number."""

_KINDS = {STRING: "STRING", NUMBER: "NUMBER"}
_ONLY_BEFORE = {
    "AS_QUERY": frozenset({"SELECT", "WITH", "VALUES", "("}),
    "FIXED": frozenset({"("}),
    "MAP": frozenset({"("}),
}
"""Maps the terminal of each keyword that is a keyword only before certain tokens to these tokens. Before any other
token, the keyword's word is a name."""


class Parser:
    """Parses one statement. The statement consists of ``tokens[first:last]``, and ``text`` is the text of the whole
    script."""

    __slots__ = ("accept", "at", "first", "last", "states", "tables", "text", "tokens", "values")

    def __init__(
        self,
        text: str,
        tokens: list[Token],
        first: int,
        last: int,
        *,
        rule: str = "statement",
        by: Tables | None = None,
    ) -> None:
        self.text = text
        self.tokens = tokens
        self.at = self.first = first
        self.last = last
        self.tables = by if by is not None else tables()
        self.states = [self.tables.starts[rule]]
        self.accept = self.tables.accepts[rule]
        self.values: list[Any] = []

    def parse(self) -> Any:
        """Parses the statement and returns the value of the start rule.

        Raises SqlError SYNTAX_ERROR at the first unexpected token.
        """
        states, accept = self.states, self.accept
        actions, captures = self.tables.actions, self.tables.captures
        while True:
            terminal, token = self.captured(captures[states[-1]]) or self.terminal()
            while True:
                action = actions[states[-1]].get(terminal)
                if isinstance(action, int):
                    if len(states) > MOST_STACKED:
                        raise SqlError(
                            TOO_COMPLEX,
                            "this is nested too deeply",
                            span=token.span,
                            hint="remove levels of nesting",
                        )
                    states.append(action)
                    self.values.append(token)
                    break
                if action is None:
                    last = self.values[-1] if self.values else None
                    before, after = self.around(token)
                    raise syntax_error(token, self.accepted(), last, before=before, after=after)
                try:
                    self.reduce(action)
                except SqlError as error:
                    raise _placed(error, token)  # noqa: B904 - the same error, with its position
                if states[-1] == accept and terminal == "$END":
                    return self.values[-1]

    def captured(self, terminal: str | None) -> tuple[str, Token] | None:
        """Cuts out the free text at this position, if the grammar expects free text and such text can begin at this
        position."""
        if terminal is None:
            return None
        token = CAPTURE[terminal](self)
        return None if token is None else (terminal, token)

    def reduce(self, rule: Reduction) -> None:
        """Performs a reduction: replaces the symbols of a rule on top of the stacks with the rule's value."""
        states, values, size = self.states, self.values, rule.size
        if size:
            tail = values[-size:]
            del states[-size:], values[-size:]
            if rule.spliced:
                kept: list[Any] = []
                for index in rule.kept:
                    if index in rule.spliced:
                        kept.extend(tail[index])
                    else:
                        kept.append(tail[index])
            else:
                kept = [tail[index] for index in rule.kept]
        else:
            kept = []
        if rule.is_splice:
            values.append(kept)
        else:
            action = RULES.get(rule.action)
            values.append(action(*kept) if action is not None else kept[0] if kept else None)
        states.append(self.tables.goto[states[-1]][rule.origin])

    def terminal(self) -> tuple[str, Token]:
        """Classifies the next token in this state, moves past the token, and returns its terminal."""
        token = self.tokens[self.at] if self.at < self.last else self.end()
        kind = token.kind
        if kind == WORD:
            row = self.tables.actions[self.states[-1]]
            for name, words in self.tables.spelled.get(token.upper, ()):
                if name in row and self.follows(name, words) and self.can_shift(name):
                    self.at += len(words)
                    return name, token
            self.at += 1
            return ("WORD" if token.upper in RESERVED or not self.can_shift("NAME") else "NAME"), token
        if kind == END:
            return "$END", token
        self.at += 1
        if kind == PUNCTUATION:
            return SIGNS.get(token.text, token.text), token
        if kind == QUOTED:
            return ("NAME" if self.can_shift("NAME") else "WORD"), token
        return _KINDS.get(kind, kind), token

    def end(self) -> Token:
        """An END token, located right after the statement's last token."""
        if self.last == 0 or self.at == 0:
            return self.tokens[self.last]
        before = self.tokens[self.last - 1]
        lines = before.text.count("\n")
        column = before.column + len(before.text) if not lines else len(before.text) - before.text.rfind("\n")
        return Token(END, "", "", before.end, before.end, before.line + lines, column)

    def follows(self, terminal: str, words: tuple[str, ...]) -> bool:
        """True if the next tokens are the keyword's words, and the keyword is permitted before the token that follows
        these words."""
        at, tokens = self.at, self.tokens
        after = at + len(words)
        if after > self.last:
            return False
        if not all(tokens[at + i].upper == word and tokens[at + i].kind == WORD for i, word in enumerate(words)):
            return False
        needed = _ONLY_BEFORE.get(terminal)
        return needed is None or (after < self.last and tokens[after].upper in needed)

    def can_shift(self, terminal: str) -> bool:
        """True if the grammar accepts this terminal now. The function simulates the reductions that precede the shift,
        because the tables also contain reductions for terminals that cannot follow."""
        actions, goto = self.tables.actions, self.tables.goto
        action = actions[self.states[-1]].get(terminal)
        if action is None or isinstance(action, int):
            return action is not None
        states = self.states.copy()
        while not isinstance(action, int):
            if action is None:
                return False
            if action.size:
                del states[-action.size :]
            states.append(goto[states[-1]][action.origin])
            if terminal == "$END" and states[-1] == self.accept:
                return True
            action = actions[states[-1]].get(terminal)
        return True

    def around(self, token: Token) -> tuple[list[Token], list[Token]]:
        """The statement's tokens before and after ``token``."""
        others = self.tokens[self.first : self.last]
        before = [other for other in others if other.start < token.start]
        return before, [other for other in others[len(before) :] if other.start > token.start]

    def accepted(self) -> set[str]:
        """All terminals that the grammar accepts now."""
        return {terminal for terminal in self.tables.actions[self.states[-1]] if self.can_shift(terminal)}


def _placed(error: SqlError, token: Token) -> SqlError:
    """The error that a rule's action raised. An error without a position gets the position of the token after the
    rule."""
    if error.span is None:
        error.span = token.span
        if error.message.startswith("expected "):
            error.message += f", found: {found(token)}"
    return error
