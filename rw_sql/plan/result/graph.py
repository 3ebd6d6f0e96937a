"""Represents a graph as boxes and arrows, and renders it in the formats that need no layout: text, Mermaid and JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """A box. ``state`` is a word such as RUNNING, or empty. ``note`` is a short addition such as a lag."""

    id: int
    name: str
    kind: str
    state: str = ""
    note: str = ""

    @property
    def said(self) -> str:
        """The text below the box's name: the kind, the state and the note."""
        return " · ".join(part for part in (self.kind.replace("_", " "), self.state, self.note) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A graph of boxes and arrows. An arrow leads from an object to one of its readers, and is stored as the pair of
    their box ids."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[int, int], ...]

    def to_json(self) -> dict[str, object]:
        """The graph as dicts and lists for JSON."""
        return {
            "nodes": [asdict(node) for node in self.nodes],
            "edges": [{"from": start, "to": end} for start, end in self.edges],
        }


def to_mermaid(graph: Graph) -> str:
    """The graph as a Mermaid flowchart."""
    lines = ["flowchart LR"]
    lines += [f'  n{node.id}["{mermaid_label(node.name)}<br/>{mermaid_label(node.said)}"]' for node in graph.nodes]
    lines += [f"  n{start} --> n{end}" for start, end in graph.edges]
    stalled = [f"n{node.id}" for node in graph.nodes if node.state == "STALLED"]
    if stalled:
        lines += ["  classDef stalled stroke:#c0392b,stroke-width:3px", f"  class {','.join(stalled)} stalled"]
    return "\n".join(lines) + "\n"


def mermaid_label(text: str) -> str:
    """Escapes a text for a quoted Mermaid label.

    Characters that could end the label or act as markup are replaced with entities.
    """
    return "".join(letter if letter.isalnum() or letter in " _-.:·" else f"#{ord(letter)};" for letter in text)


def to_text(graph: Graph) -> str:
    """The graph as a text tree for a terminal.

    A box with several inputs is printed in full below its first input, and as a reference below its other inputs.
    """
    readers: dict[int, list[int]] = {node.id: [] for node in graph.nodes}
    is_read_by: set[int] = set()
    for start, end in graph.edges:
        readers[start].append(end)
        is_read_by.add(end)
    known = {node.id: node for node in graph.nodes}
    lines: list[str] = []
    drawn: set[int] = set()
    # Uses a stack instead of recursion, because a chain of views may be longer than Python's stack.
    roots = [node.id for node in graph.nodes if node.id not in is_read_by] or [node.id for node in graph.nodes][:1]
    waiting: list[tuple[int, str, str]] = [(id_, "", "") for id_ in reversed(roots)]
    while waiting:
        id_, first, rest = waiting.pop()
        node = known[id_]
        if id_ in drawn:
            if readers[id_]:
                lines.append(f"{first}{_plain(node.name)} (above)")
            else:
                lines.append(f"{first}{_plain(node.name)} ({node.said})")
            continue
        drawn.add(id_)
        lines.append(f"{first}{_plain(node.name)} ({node.said})")
        children = readers[id_]
        for at, child in reversed(list(enumerate(children))):
            is_last = at == len(children) - 1
            waiting.append((child, rest + ("└─ " if is_last else "├─ "), rest + ("   " if is_last else "│  ")))
    return "\n".join(lines) + "\n" if lines else ""


def _plain(name: str) -> str:
    """Returns a name in a form that is safe to print: on one line, and without terminal control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)
