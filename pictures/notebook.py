"""The pictures of a notebook in JupyterLab: the README's workflow in cells, run by a kernel that runs the jobs."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import nbformat
from playwright.sync_api import Browser, Page

from pictures.browser import Album
from rw_sql.cli.servers.kafka_topics import create_topic, produce

LONGEST_MS = 300_000

_ROOT = Path(__file__).parents[1]

_CELLS = (
    'import rw_sql\n\nspark = rw_sql.connect("shop")\n%load_ext rw_sql',
    "%%rw\n"
    "SET statement_timeout = '5min';\n\n"
    "CREATE SOURCE orders (id INT, customer VARCHAR, amount INT)\n"
    "WITH (connector = 'kafka', topic = 'orders', properties.bootstrap.server = '{broker}')\n"
    "FORMAT PLAIN ENCODE JSON;\n\n"
    "CREATE MATERIALIZED VIEW totals AS\n"
    "SELECT customer, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY customer;\n\n"
    "FLUSH;                       -- blocks until the views hold what the topic holds now\n"
    "SELECT * FROM totals ORDER BY customer;",
    "%%rw\nSELECT custmer, sum(amount) FROM orders GROUP BY customer;",
    "%%rw\n"
    "ALTER SYSTEM SET enable_unsafe_ops = true;\n"
    "PAUSE SOURCE orders REASON 'producers move to orders_v2';\n"
    "EXPLAIN INJECT SOURCE OFFSETS orders VALUES ('orders:0' = 100, 'orders:1' = 120);",
    "%%rw\nEXPLAIN (FORMAT SVG) INJECT SOURCE OFFSETS orders VALUES ('orders:0' = 100, 'orders:1' = 120);",
    "%%rw --yes\n"
    "INJECT SOURCE OFFSETS orders VALUES ('orders:0' = 100, 'orders:1' = 120) ALLOW DUPLICATES;\n"
    "RESUME SOURCE orders;\n"
    "FLUSH;\n"
    "SHOW UNSAFE OPERATIONS FOR orders;",
    "%rw SHOW LINEAGE",
    "%rw EXPLAIN (FORMAT SVG) SHOW LINEAGE",
    "%rw watch",
)
_SHOWN = {"results": (0, 3), "move": (3, 6), "lineage": (6, 9)}
"""The cells of each picture: the first, and the one behind the last."""

_SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},  # all cells are drawn, not only those in sight
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


def make(browser: Browser, album: Album, folder: Path, broker: str) -> None:
    """Runs the cells, and shows them by parts in both themes; then the completion in a new cell."""
    for topic in ("orders", "orders_v2"):
        create_topic(broker, topic, 2)
    names = ("ann", "bob", "eve")
    produce(broker, "orders", [json.dumps({"id": n, "customer": names[n % 3], "amount": 5 * n}) for n in range(300)])
    tagged = {"tags": ["raises-exception"]}  # one shows a mistake, after which the others continue
    cells = [nbformat.v4.new_code_cell(cell.replace("{broker}", broker), metadata=tagged) for cell in _CELLS]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}  # else JupyterLab asks for one
    book = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    home = folder / "notebook"
    home.mkdir()
    nbformat.write(book, home / "shop.ipynb")
    with _lab(home) as address:
        context = browser.new_context(viewport={"width": 1180, "height": 5000}, device_scale_factor=1.25)
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=LONGEST_MS)
        _command(page, "application:toggle-left-area")
        _run_cells(page)
        _add_cell(page)
        for theme, name in (("light", "JupyterLab Light"), ("dark", "JupyterLab Dark")):
            _command(page, "apputils:change-theme", {"theme": name})
            page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
            page.wait_for_timeout(1000)
            for part, (first, last) in _SHOWN.items():
                album.keep(f"notebook-{part}", theme, _picture(page, first, last))
            album.keep("notebook-completion", theme, _completion(page))
        context.close()


def _command(page: Page, name: str, arguments: Mapping[str, object] | None = None) -> None:
    # Not waited for: of some commands, the promise is never kept.
    run = "([name, given]) => { window.jupyterapp.commands.execute(name, given); }"
    page.evaluate(run, [name, dict(arguments or {})])
    page.wait_for_timeout(1500)


def _run_cells(page: Page) -> None:
    """Runs all cells. The last one watches the jobs without an end; it is interrupted once it shows a rate."""
    page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=LONGEST_MS)
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    cells.first.locator(".jp-InputPrompt").click()  # a command is for the notebook that has the focus
    while not cells.first.locator(".jp-InputPrompt", has_text="*").count():
        _command(page, "notebook:run-all-cells")  # does nothing before the kernel is connected
    last = cells.nth(len(_CELLS) - 1)
    last.locator("table").wait_for(timeout=LONGEST_MS)
    page.wait_for_timeout(5000)
    _command(page, "notebook:interrupt-kernel")
    last.locator(".jp-InputPrompt", has_text=str(len(_CELLS))).wait_for(timeout=LONGEST_MS)


def _add_cell(page: Page) -> None:
    """A new cell at the end, with the beginning of a statement."""
    page.locator(".jp-Notebook .jp-CodeCell").last.locator(".jp-InputPrompt").click()
    _command(page, "notebook:insert-cell-below")
    _command(page, "notebook:enter-edit-mode")
    page.keyboard.type("%%rw\nINJECT SOURCE OFFSETS orders ")


def _completion(page: Page) -> bytes:
    """The new cell with the menu of what may follow."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").last
    cell.locator(".cm-line").last.click()
    page.keyboard.press("End")
    page.keyboard.press("Tab")
    menu = page.locator(".jp-Completer")
    menu.wait_for(timeout=LONGEST_MS)
    page.wait_for_timeout(500)
    above, below = cell.bounding_box(), menu.bounding_box()
    assert above is not None
    assert below is not None
    clip = {"x": 0, "y": above["y"] - 4, "width": 760, "height": below["y"] + below["height"] + 12 - above["y"]}
    picture = page.screenshot(clip=clip)
    page.keyboard.press("Escape")
    return picture


def _picture(page: Page, first: int, last: int) -> bytes:
    """The cells from one to another, with the notebook's tools above the first one."""
    page.evaluate("() => document.activeElement?.blur()")
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    above, below = cells.nth(first).bounding_box(), cells.nth(last - 1).bounding_box()
    assert above is not None
    assert below is not None
    top = 0.0 if first == 0 else above["y"] - 4
    bottom = below["y"] + below["height"] + 8
    return page.screenshot(clip={"x": 0, "y": top, "width": 1180, "height": bottom - top})


@contextmanager
def _lab(home: Path) -> Iterator[str]:
    """Runs JupyterLab with this repository's extension and settings of its own; yields the notebook's address."""
    settings = home / "settings" / "@jupyterlab"
    for name, values in _SETTINGS.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    extensions = home / "extensions"
    extensions.mkdir()
    (extensions / "rw-sql-jupyterlab").symlink_to(_ROOT / "labextension", target_is_directory=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    options = (
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={home}",
        "--LabApp.expose_app_in_browser=True",
        f"--LabApp.extra_labextensions_path={extensions}",
        f"--LabApp.user_settings_dir={home / 'settings'}",
        f"--LabApp.workspaces_dir={home / 'workspaces'}",
    )
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
    }
    with (home / "lab.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], cwd=home, env=environment, stdout=log, stderr=log
        )
    try:
        _wait_for_lab(f"http://127.0.0.1:{port}/api?token={token}", process, home / "lab.log")
        yield f"http://127.0.0.1:{port}/lab/tree/shop.ipynb?token={token}"
    finally:
        process.terminate()
        process.wait()


def _wait_for_lab(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + LONGEST_MS / 1000
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"JupyterLab ended:\n{log.read_text(encoding='utf-8')}")
        try:
            with urllib.request.urlopen(address):
                return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(f"JupyterLab does not answer; see {log}")
