"""The pictures of the status page: at the width of a desk's screen and of a phone's."""

from __future__ import annotations

from typing import Any, Literal

from playwright.sync_api import Browser

from pictures.browser import Album

_THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


_TALLEST = {"page": 2200, "page-phone": 1500}
"""The height of a picture, in pixels of the page; what is below it is left out."""


def make(browser: Browser, album: Album, address: str) -> None:
    """Shows the page with its newest unsafe operation unfolded."""
    for theme in _THEMES:
        for name, screen in _screens().items():
            context = browser.new_context(color_scheme=theme, **screen)
            page = context.new_page()
            page.goto(address)
            page.wait_for_selector("tbody tr")
            page.locator("details summary").first.click()
            height = page.evaluate("document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": screen["viewport"]["width"], "height": min(height, _TALLEST[name])}
            album.keep(name, theme, page.screenshot(full_page=True, clip=clip))
            context.close()


def _screens() -> dict[str, dict[str, Any]]:
    return {
        "page": {"viewport": {"width": 1180, "height": 800}},
        "page-phone": {"viewport": {"width": 390, "height": 800}, "is_mobile": True, "device_scale_factor": 1.5},
    }
