"""Renders the status page as one HTML document on the server. The page's style sheet and script are separate documents
with their own addresses. All text from the warehouse is escaped."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from rw_sql.plan.result.graph import Graph
from rw_sql.plan.result.graph_svg import STYLE, to_svg
from rw_sql.runtime.status.words import STATES, ago, duration, in_words, owner_texts, worst_first
from rw_sql.syntax import split_script

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rw_sql.runtime.status.reading import JobLine, OperationLine, WarehouseStatus

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
"""The value of the Content-Security-Policy header. The header forbids all content from other origins, and scripts and
styles inside the HTML document."""

ROWS_SHOWN = 200
"""The default maximum number of jobs on the page. Jobs that need an operator come first."""

MOST_ROWS = 20_000
"""The maximum number of jobs that a query string of the page can select."""
BOXES_DRAWN = 150
"""The maximum number of objects for which the page draws the lineage. If there are more, the page asks the user to
choose one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """The user's selection on the page. The page lists at most ``limit`` jobs that are in ``state`` and whose object's
    name contains ``name``. The page draws the lineage of the object ``lineage``. An empty ``name``, ``state`` or
    ``lineage`` selects everything."""

    name: str = ""
    state: str = ""
    limit: int = ROWS_SHOWN
    lineage: str = ""

    @classmethod
    def read(cls, query: Mapping[str, Sequence[str]]) -> PageQuery:
        """Reads the query string of the page's address. A ``limit`` that is not a number counts as missing."""

        def last(key: str) -> str:
            return query[key][-1] if query.get(key) else ""

        limit = last("limit")
        is_number = limit.isascii() and limit.isdecimal() and len(limit) < 9
        return cls(
            name=last("name"),
            state=last("state"),
            limit=min(int(limit), MOST_ROWS) if is_number else ROWS_SHOWN,
            lineage=last("lineage"),
        )


@cache
def style() -> str:
    """The style sheet of the page and of its lineage drawings."""
    return files(__package__).joinpath("page.css").read_text(encoding="utf-8") + STYLE


@cache
def script() -> str:
    """The page's script, which reloads the page's content every few seconds. The page also works without this
    script."""
    return files(__package__).joinpath("page.js").read_text(encoding="utf-8")


def page_html(status: WarehouseStatus, query: PageQuery) -> str:
    """The whole document."""
    stalled = len(status.stalled)
    title = f"({stalled} stalled) rw_sql" if stalled else "rw_sql"
    body = "\n".join(
        [
            _head(status),
            _attention(status),
            _jobs(status, query),
            _operations(status),
            _lineage(status, query),
        ]
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<link rel="stylesheet" href="style.css">\n<link rel="icon" href="data:,">\n'
        '<script src="script.js" defer></script>\n</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _head(status: WarehouseStatus) -> str:
    measured = "not measured yet" if status.measured_ms is None else f"measured {ago(status.measured_ms, status.at_ms)}"
    owners = "".join(
        f'<p class="owner {_word(owner.state)}">{escape(text)}</p>\n' for owner, text in owner_texts(status)
    )
    return (
        f"<header><h1>{escape(status.warehouse)}</h1>\n"
        f"{owners}<p>rw_sql {escape(status.version)}, epoch {status.epoch}; lags and rates {measured}</p></header>"
    )


def _attention(status: WarehouseStatus) -> str:
    """The HTML section of the stalled jobs, each with its reason and the statements that the reason suggests."""
    if not status.stalled:
        return ""
    parts = [f'<section class="attention"><h2>Stalled: {len(status.stalled)}</h2>']
    for job in status.stalled[:20]:
        said = f"<p><strong>{escape(job.object)}</strong> ({escape(job.job)}): {escape(in_words(_cause(job)))}</p>"
        if job.statements:
            lines = "".join(f"{statement};\n" for statement in job.statements)
            said += f'<p>Type:</p><pre class="sql">{escape(lines)}</pre>'
        if job.last_error and job.last_error not in job.reason:
            said += f"<p>last error: {escape(job.last_error)}</p>"
        parts.append(f"<article>{said}</article>")
    if len(status.stalled) > 20:
        parts.append(f'<p><a href="?{_query(state="STALLED")}">all {len(status.stalled)} of them</a></p>')
    return "\n".join([*parts, "</section>"])


def _cause(job: JobLine) -> str:
    """A job's reason without the statements at its end, which the page shows separately."""
    return job.reason if not job.statements else job.reason.rpartition(f": {job.statements[0]}")[0] or job.reason


_COLUMNS = ("object", "kind", "state", "records behind", "time behind", "rows/s", "last batch", "run", "restarts")


_CURRENT = ' aria-current="true"'
_EVERYTHING = ' <a href="?">show all</a>'


def _jobs(status: WarehouseStatus, query: PageQuery) -> str:
    counts = Counter(job.state for job in status.jobs)
    links = "".join(
        f'<a class="state {_word(state)}" href="?{_query(name=query.name, state=state)}"'
        f"{_CURRENT if state == query.state else ''}>{number} {escape(state)}</a> "
        for state, number in sorted(counts.items(), key=lambda item: _rank(item[0]))
    )
    wanted = query.name.casefold()
    found = [
        job for job in worst_first(status.jobs) if wanted in job.object.casefold() and query.state in ("", job.state)
    ]
    shown = found[: query.limit]
    heads = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    more = ""
    if len(found) > len(shown):
        everything = _query(name=query.name, state=query.state, limit=min(len(found), MOST_ROWS))
        more = f'<p>{len(shown)} of {len(found)} jobs are shown; <a href="?{everything}">show more</a></p>'
    return (
        f"<section><h2>Jobs: {len(status.jobs)}</h2>\n<p>{links}</p>\n"
        '<form method="get"><label>object <input name="name" type="search" value="'
        f'{escape(query.name)}"></label> <input type="hidden" name="state" value="{escape(query.state)}">'
        f"<button>filter</button>{_EVERYTHING if query.name or query.state else ''}</form>\n"
        f'<div class="wide"><table class="jobs"><thead><tr>{heads}</tr></thead>\n<tbody>\n'
        + "\n".join(_row(job, status.at_ms) for job in shown)
        + f"\n</tbody></table></div>{more}</section>"
    )


def _row(job: JobLine, at_ms: int) -> str:
    reason = f"<br><small>{escape(_cause(job))}</small>" if job.reason else ""
    figures = (
        "" if job.lag_records is None else f"{job.lag_records:,}",
        "" if job.lag_seconds is None else duration(job.lag_seconds),
        "" if job.rows_per_second is None else f"{job.rows_per_second:,.1f}",
        "" if job.last_batch_ms is None else ago(job.last_batch_ms, at_ms),
        "" if job.run is None else str(job.run),
        str(job.restarts),
    )
    # On a phone, a row is shown as a card in which each value follows its column's name.
    cells = "".join(
        f'<td data-column="{column}">{figure}</td>' for column, figure in zip(_COLUMNS[3:], figures, strict=True)
    )
    return (
        f'<tr><th scope="row"><a href="?{_query(lineage=job.object)}#lineage">{escape(job.object)}</a></th>'
        f'<td>{escape(job.kind.replace("_", " "))}</td><td><span class="state {_word(job.state)}">{escape(job.state)}'
        f"</span>{reason}</td>{cells}</tr>"
    )


def _operations(status: WarehouseStatus) -> str:
    parts = [f"<section><h2>Unsafe operations</h2>{'' if status.operations else '<p>none</p>'}"]
    parts += [_operation(operation, status.at_ms) for operation in status.operations]
    return "\n".join([*parts, "</section>"])


def _operation(operation: OperationLine, at_ms: int) -> str:
    said = [
        f"<details><summary>{operation.operation}: {escape(operation.kind)} on {escape(operation.objects)},"
        f" {ago(operation.at_ms, at_ms)}, by {escape(operation.actor)}"
        f"{f' ({escape(operation.outcome)})' if operation.outcome else ''}</summary>",
        f'<pre class="sql">{escape(_by_lines(operation.statement))};</pre>',
    ]
    if operation.reason:
        said.append(f"<p>reason: {escape(operation.reason)}</p>")
    if operation.preview:
        said.append(f'<p>preview:</p><div class="wide"><pre>{escape(operation.preview)}</pre></div>')
    if operation.undo:
        said.append(f'<p>undo:</p><pre class="sql">{escape(operation.undo)};</pre>')
    if operation.rewind:
        said.append(f'<p>undo, rows included:</p><pre class="sql">{escape(operation.rewind)};</pre>')
    return "\n".join([*said, "</details>"])


def _by_lines(text: str) -> str:
    """The text of one or more statements, with each statement on a separate line."""
    return "\n".join(part.text + ";" for part in split_script(text)).removesuffix(";")


def _lineage(status: WarehouseStatus, query: PageQuery) -> str:
    graph = around(status.lineage, query.lineage) if query.lineage else status.lineage
    parts = ['<section id="lineage"><h2>Lineage</h2>']
    if query.lineage:
        parts.append(f'<p>of {escape(query.lineage)}; <a href="?#lineage">of all objects</a></p>')
    if not graph.nodes:
        parts.append("<p>none</p>")
    elif len(graph.nodes) > BOXES_DRAWN:
        parts.append(f"<p>{len(graph.nodes)} objects are too many to draw: choose one in the table of jobs.</p>")
    else:
        parts.append(f'<div class="wide">{to_svg(graph, has_style=False)}</div>')
    return "\n".join([*parts, "</section>"])


def around(graph: Graph, name: str) -> Graph:
    """Returns the part of the lineage graph that contains the nodes with the name ``name`` and all nodes upstream or
    downstream of these nodes."""
    kept: set[int] = set()
    for edges in (graph.edges, tuple((end, start) for start, end in graph.edges)):
        following: dict[int, list[int]] = {}
        for start, end in edges:
            following.setdefault(start, []).append(end)
        waiting = [node.id for node in graph.nodes if node.name == name]
        seen = set(waiting)
        while waiting:
            new = [id_ for id_ in following.get(waiting.pop(), ()) if id_ not in seen]
            seen.update(new)
            waiting += new
        kept |= seen
    return Graph(
        nodes=tuple(node for node in graph.nodes if node.id in kept),
        edges=tuple((start, end) for start, end in graph.edges if start in kept and end in kept),
    )


def _query(**parameters: object) -> str:
    return escape(urlencode({key: value for key, value in parameters.items() if value not in ("", None)}))


def _rank(state: str) -> int:
    return STATES.index(state) if state in STATES else len(STATES)


def _word(state: str) -> str:
    """A job state as a CSS class name."""
    return state.lower() if state.isalpha() else "other"
