"""What the site needs beside Markdown that GitHub shows as well: pages from outside ``docs/``, and links.

MkDocs calls these functions by their names (``hooks`` in mkdocs.yml).
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = "docs"
PROJECT = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
}
"""Files of the repository's root that are pages of the site."""

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
MADE = re.compile(r"\A<!--.*?-->\s*", re.DOTALL)
WHOLE_LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)\s#]+)(?:#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from the repository's root."""
    for name, uri in PROJECT.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead to pages of the site; to what is none of them there is no link."""
    here = page.file.src_uri
    in_repository = {uri: name for name, uri in PROJECT.items()}.get(here, f"{DOCS}/{here}")

    def uri(path: str) -> str | None:
        name = normpath(join(dirname(in_repository), path))
        if name in PROJECT:
            return PROJECT[name]
        is_page = name.startswith(f"{DOCS}/") and not (ROOT / name).is_dir()
        return name.removeprefix(f"{DOCS}/") if is_page else None

    def unlinked(match: re.Match[str]) -> str:
        return match[0] if uri(match[2]) else match[1]

    def moved(match: re.Match[str]) -> str:
        return relpath(uri(match[1]) or "", dirname(here) or ".") + (match[2] or "")

    # Behind a comment MkDocs would not take the heading for the page's title.
    return LINK.sub(moved, WHOLE_LINK.sub(unlinked, MADE.sub("", markdown)))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A bar in the code of a table's cell: GitHub needs it escaped, Python-Markdown would show the backslash."""
    return CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)
