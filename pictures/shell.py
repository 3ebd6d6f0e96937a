"""The pictures of the shell, at terminals of 80 and of 200 columns."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from playwright.sync_api import Browser

from pictures.browser import Album
from pictures.shop import PROGRAM, Shop
from pictures.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ZOOM = {80: 1.5, 200: 1.0}
"""Pixels of a picture for a pixel of the page, for each width."""


def make(browser: Browser, album: Album, shop: Shop) -> None:
    """Types what a first session types, and shows the screen after each part."""
    for columns, parts in _PARTS.items():
        with _shell(shop, columns) as terminal:
            terminal.wait_for_prompt()
            terminal.wait_for(lambda text: "starting" not in text and "opening" not in text, "that Spark is up")
            for name, show in parts.items():
                show(terminal)
                _keep(browser, album, terminal, name)
                _leave(terminal)


def _objects(terminal: Terminal) -> None:
    """The objects, one of them, and the jobs."""
    for line in ("\\d", "\\d totals", "\\dj"):
        terminal.type_line(line)
        terminal.wait_for_prompt()


def _query(terminal: Terminal) -> None:
    """A query, one with a mistake, and the positions of a source."""
    for line in (
        "SELECT * FROM totals ORDER BY customer;",
        "SELECT custmer, amount\nFROM totals;",
        "SHOW SOURCE SPLITS orders;",
    ):
        terminal.type_line(line)
        terminal.wait_for_prompt()


def _completion(terminal: Terminal) -> None:
    """The menu of what may follow; the text has keywords, a string and a number."""
    terminal.type_text("SHOW SOURCES LIKE 'ord%'; INJECT SOURCE OFFSETS orders \t")
    terminal.wait_for(lambda text: "VALUES" in text, "the menu")
    terminal.read(1.0)


def _status(terminal: Terminal) -> None:
    """The status line of a statement that takes more than a second."""
    terminal.type_line("DROP MATERIALIZED VIEW IF EXISTS large;")
    terminal.wait_for_prompt()
    terminal.clear()
    terminal.type_line("CREATE MATERIALIZED VIEW large AS\nSELECT id, customer, amount FROM orders WHERE amount > 50;")
    terminal.wait_for(lambda text: "Ctrl-C cancels" in text and "waiting" in text, "a status line")


def _preview(terminal: Terminal) -> None:
    """What a move would do."""
    terminal.type_line("EXPLAIN INJECT SOURCE OFFSETS orders VALUES ('orders_v2:0' = 100);")
    terminal.wait_for_prompt()


def _watch(terminal: Terminal) -> None:
    """A query that is repeated."""
    terminal.type_line("SELECT * FROM totals ORDER BY customer \\watch 2")
    terminal.wait_for(lambda text: text.count("(every 2 s)") >= 2 and text.count("rows)") >= 2, "two looks")


_PARTS: dict[int, dict[str, Callable[[Terminal], None]]] = {
    80: {
        "objects": _objects,
        "query": _query,
        "completion": _completion,
        "preview": _preview,
        "watch": _watch,
        "status": _status,
    },
    200: {"objects": _objects, "completion": _completion},
}


def _leave(terminal: Terminal) -> None:
    """Ends what was typed or runs, and clears the screen."""
    terminal.type_text("\x03")
    terminal.wait_for_prompt()
    terminal.clear()
    terminal.wait_for_prompt()


@contextmanager
def _shell(shop: Shop, columns: int) -> Iterator[Terminal]:
    terminal = Terminal(
        [*PROGRAM, "shell"], columns=columns, lines=60, folder=shop.folder, environment=shop.environment()
    )
    try:
        yield terminal
    finally:
        terminal.close()


def _keep(browser: Browser, album: Album, terminal: Terminal, name: str) -> None:
    context = browser.new_context(device_scale_factor=_ZOOM[terminal.columns])
    page = context.new_page()
    for theme in ("light", "dark"):
        page.set_content(terminal.html(theme))
        album.keep(f"shell-{name}-{terminal.columns}", theme, page.locator("pre").screenshot())
    context.close()
