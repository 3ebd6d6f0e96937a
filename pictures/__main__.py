"""``python -m pictures``: makes the pictures of the shell, the status page and the notebook, light and dark.

It starts a Kafka broker, a warehouse, ``rw-sql serve``, the shell at a pseudo-terminal, and JupyterLab, all in a folder
of their own, and headless Chromium, which draws the pictures.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pictures import notebook, page, shell
from pictures.browser import Album, chromium
from pictures.shop import Shop
from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker

FOLDER = Path(__file__).parents[1] / "docs" / "assets" / "pictures"
PARTS = ("page", "shell", "notebook")


def main(
    only: Annotated[list[str] | None, typer.Argument(metavar="[page|shell|notebook]...")] = None,
    folder: Annotated[Path, typer.Option(help="Where the pictures go.")] = FOLDER,
) -> None:
    """Makes the pictures; by default, all of them."""
    parts = only or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: the parts are {', '.join(PARTS)}")
    album = Album(folder)
    with tempfile.TemporaryDirectory(prefix="rw_sql_pictures_") as made, chromium() as browser:
        work = Path(made)
        if "page" in parts or "shell" in parts:
            with _broker(work / "kafka") as broker:
                shop = Shop(work, broker)
                shop.open()
                with shop.served() as address:
                    if "page" in parts:
                        page.make(browser, album, address)
                    if "shell" in parts:
                        shell.make(browser, album, shop)
        if "notebook" in parts:
            with _broker(work / "kafka_of_the_notebook") as broker:
                notebook.make(browser, album, work, broker)


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    """Runs a broker in a folder. Yields its address."""
    try:
        yield start_broker(folder, port=0).bootstrap
    finally:
        stop_broker(folder)


if __name__ == "__main__":
    typer.run(main)
