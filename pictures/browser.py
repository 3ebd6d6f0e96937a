"""Headless Chromium, and pictures that are small: PNG files with at most 256 colours."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

LARGEST_BYTES = 200_000

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_COLOURS = (256, 128, 64, 32)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium: that of the variable ``CHROMIUM``, of the system, or of ``playwright install chromium``."""
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _PROGRAMS)), None)
    # As root, as in a container, Chromium refuses its own sandbox; it shows only what this program serves.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*arguments, "--font-render-hinting=none"])
        try:
            yield browser
        finally:
            browser.close()


class Album:
    """The folder of the pictures."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, name: str, theme: str, png: bytes) -> None:
        """Writes ``NAME-THEME.png`` with as many colours as its size allows. Raises ValueError if none is small
        enough."""
        image = Image.open(io.BytesIO(png)).convert("RGB")
        for colours in _COLOURS:
            made = io.BytesIO()
            image.quantize(colours, dither=Image.Dither.NONE).save(made, "PNG", optimize=True)
            if made.tell() <= LARGEST_BYTES:
                (self._folder / f"{name}-{theme}.png").write_bytes(made.getvalue())
                print(f"{name}-{theme}.png: {image.width} x {image.height}, {made.tell() // 1000} kB", flush=True)
                return
        raise ValueError(f"{name}-{theme}.png has {made.tell()} bytes, more than {LARGEST_BYTES}: show less")
