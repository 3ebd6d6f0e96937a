"""Finds the comments of a statement, and inserts the comments into the formatted text."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from rw_sql.syntax.lexing.tokens import STRING, end_of_comment, scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rw_sql.syntax.lexing.tokens import Token

_STEP = 2
_LINE = re.compile(r"--[^\n]*")
_MOST_COMPARED = 40_000
"""If the product of the numbers of tokens of two texts is at most this number, the texts are compared as a whole."""

_Key = tuple[str, str]
"""The kind of a token (``text`` for a string literal, otherwise ``word``), and the token's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment of a statement. ``begins_line`` is true if only white space precedes the comment in its line, and
    ``ends_line`` is true if only white space follows it."""

    text: str
    start: int
    before: int
    """The number of tokens before the comment."""
    begins_line: bool
    ends_line: bool

    @property
    def is_to_end_of_line(self) -> bool:
        """True for a comment that begins with ``--``."""
        return self.text.startswith("--")


def comments_of(text: str, tokens: Sequence[Token]) -> list[Comment]:
    """The comments between the tokens of ``text``, in order. ``tokens`` includes END."""
    found = []
    end = 0
    for before, token in enumerate(tokens):
        at = end
        while at < token.start:
            if text.startswith("--", at):
                match = _LINE.match(text, at)
                assert match is not None
                stop = match.end()
            elif text.startswith("/*", at):
                stop = end_of_comment(text, at)
            else:
                at += 1
                continue
            line_start = text.rfind("\n", 0, at) + 1
            line_end = text.find("\n", stop)
            found.append(
                Comment(
                    text=text[at:stop].rstrip(),
                    start=at,
                    before=before,
                    begins_line=not text[line_start:at].strip(),
                    ends_line=not text[stop : line_end if line_end >= 0 else len(text)].strip(),
                )
            )
            at = stop
        end = token.end
    return found


def without_comments(text: str, comments: Sequence[Comment]) -> str:
    """The text, in which spaces replace the comments."""
    pieces = []
    done = 0
    for comment in comments:
        pieces += [text[done : comment.start], " " * len(comment.text)]
        done = comment.start + len(comment.text)
    return "".join(pieces) + text[done:]


def pairs_of(before: Sequence[Token], after: Sequence[Token]) -> dict[int, int]:
    """Maps the index of each token of the original text to the index of the same token in the formatted text.

    The two indexes may differ, because formatting may drop words without a meaning, and may reorder clauses. The result
    does not contain dropped words.
    """
    old, new = [_key(token) for token in before], [_key(token) for token in after]
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    pairs = {at: at for at in range(same)}
    if same == len(old) or same == len(new):
        return pairs
    pairs.update((same + at, same + then) for at, then in _matched(old[same:], new[same:]))
    _pair_moved(old, new, pairs)
    _pair_respelled(len(old), pairs)
    return pairs


def _matched(old: Sequence[_Key], new: Sequence[_Key]) -> Iterator[tuple[int, int]]:
    """Returns pairs of equal tokens, in the order of both texts.

    Long texts are divided at the tokens that occur only once, such as the names of columns. Without the division, the
    time for a comparison would grow faster than the square of the texts' length.
    """
    ends: list[tuple[int, int]] = []
    if len(old) * len(new) > _MOST_COMPARED:
        ends = _single(old, new)
    if not ends:
        for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
            yield from ((block.a + at, block.b + at) for at in range(block.size))
        return
    start, then = 0, 0
    for end, after in (*ends, (len(old), len(new))):
        yield from ((start + at, then + to) for at, to in _matched(old[start:end], new[then:after]))
        if end < len(old):
            yield end, after
        start, then = end + 1, after + 1


def _single(old: Sequence[_Key], new: Sequence[_Key]) -> list[tuple[int, int]]:
    """Pairs the tokens that occur exactly once in each of the two texts. Returns the longest sequence of these pairs
    that is in the order of both texts."""
    places = {key: at for at, key in enumerate(new)}
    many, more = Counter(old), Counter(new)
    pairs = [(at, places[key]) for at, key in enumerate(old) if many[key] == 1 and more[key] == 1]
    lasts: list[int] = []
    chains: list[tuple[tuple[int, int], Any]] = []
    for pair in pairs:
        length = bisect_left(lasts, pair[1])
        chain = (pair, chains[length - 1] if length else None)
        lasts[length : length + 1] = [pair[1]]
        chains[length : length + 1] = [chain]
    found, link = [], chains[-1] if chains else None
    while link is not None:
        pair, link = link
        found.append(pair)
    return found[::-1]


def _pair_moved(old: Sequence[_Key], new: Sequence[_Key], pairs: dict[int, int]) -> None:
    """Adds pairs for tokens of reordered clauses. A pair is added if the token has exactly one possible counterpart."""
    taken = set(pairs.values())
    free: dict[_Key, list[int]] = {}
    for at, key in enumerate(new):
        if at not in taken:
            free.setdefault(key, []).append(at)
    left = [at for at in range(len(old)) if at not in pairs]
    for at in left:
        if len(free.get(old[at], ())) == 1 and sum(old[other] == old[at] for other in left) == 1:
            pairs[at] = free[old[at]][0]


def _pair_respelled(old: int, pairs: dict[int, int]) -> None:
    """If a type is spelled differently in the two texts, such as VARCHAR and CHARACTER VARYING, adds a pair for the
    last words of the two spellings."""
    taken = set(pairs.values())
    for at in range(old - 1):
        following = pairs.get(at + 1)
        if at not in pairs and following is not None and following - 1 not in taken and following:
            pairs[at] = following - 1
            taken.add(following - 1)


def _key(token: Token) -> _Key:
    return ("text" if token.kind == STRING else "word"), token.value


def is_any_inside(text: str, comments: Sequence[Comment], before: Sequence[Token]) -> bool:
    """True if :func:`put_back` would put a comment between tokens of the text instead of after the last token. A
    comment is put after the last token if the comment was in a final clause that formatting drops.
    """
    last = len(scan(text)) - 1
    pairs = pairs_of(before[:-1], scan(text)[:-1])
    return any(_gap(comment, pairs, len(before) - 1, last) < last for comment in comments)


def put_back(text: str, comments: Sequence[Comment], before: Sequence[Token]) -> str:
    """Inserts ``comments``, the comments of the original text, into ``text``, the formatted text, and returns the
    result. ``before`` are the tokens of the original text, including END.

    A comment on a separate line stays attached to the next token. Any other comment stays attached to the previous
    token.
    """
    after = scan(text)
    pairs = pairs_of(before[:-1], after[:-1])
    gaps: dict[int, list[Comment]] = {}
    for comment in comments:
        gaps.setdefault(_gap(comment, pairs, len(before) - 1, len(after) - 1), []).append(comment)
    pieces: list[str] = []
    end = 0
    for at, token in enumerate(after):
        blank = text[end : token.start]
        if at in gaps:
            pieces.append(_between(gaps[at], blank, _margin(text, end), token.text))
        else:
            pieces.append(blank)
        pieces.append(token.text)
        end = token.end
    return "".join(pieces)


def _gap(comment: Comment, pairs: dict[int, int], old: int, new: int) -> int:
    """The index of the token before which a comment is placed in the formatted text."""
    following = next((pairs[at] for at in range(comment.before, old) if at in pairs), None)
    preceding = next((pairs[at] + 1 for at in range(comment.before - 1, -1, -1) if at in pairs), None)
    first, second = (following, preceding) if comment.begins_line else (preceding, following)
    gap = first if first is not None else second
    return new if gap is None else gap


def _margin(text: str, at: int) -> int:
    line = text[text.rfind("\n", 0, at) + 1 :]
    return len(line) - len(line.lstrip(" "))


def _between(comments: Sequence[Comment], blank: str, margin: int, following: str) -> str:
    """Returns the comments between two tokens, with the white space around these comments.

    ``blank`` is the white space between these tokens in the formatted text, ``margin`` is the indentation of the first
    token's line in spaces, and ``following`` is the text of the second token.
    """
    is_edge = "\n" in blank
    line = "\n" + " " * (len(blank) - blank.rfind("\n") - 1) if is_edge else "\n" + " " * (margin + _STEP)
    inner = line + " " * _STEP if is_edge and following in (")", "]") else line
    text = ""
    is_new_line = False
    for comment in comments:
        starts_next_line = (
            not comment.begins_line and not comment.is_to_end_of_line and not comment.ends_line and is_edge
        )
        if is_new_line or comment.begins_line or starts_next_line:
            text += inner
        else:
            text += " "
        text += comment.text
        is_new_line = comment.is_to_end_of_line or comment.ends_line
    if not following:
        return text + ("\n" if comments[-1].is_to_end_of_line else "")
    if is_new_line:
        return text + line
    if is_edge and not (comments[-1].begins_line or not comments[-1].ends_line):
        return text + blank
    return text + ("" if following in (",", ")") else " ")
