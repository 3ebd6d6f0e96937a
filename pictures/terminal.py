"""A program at a pseudo-terminal, and the screen that a terminal would show of it, as HTML for the browser to draw."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import pyte

LONGEST_SECONDS = 300.0
"""The maximum wait for a text to appear: a busy machine starts Spark slowly."""

_BYTES = 65536
_FAINT, _GREY = 2, 90

_COLOURS = {
    "light": {
        "default": "#1f2328", "back": "#ffffff", "edge": "#d0d7de",
        "black": "#24292f", "red": "#b42318", "green": "#116329", "brown": "#7d4e00",
        "blue": "#0550ae", "magenta": "#8250df", "cyan": "#1b7c83", "white": "#6e7781",
        "brightblack": "#656d76", "brightred": "#a40e26", "brightgreen": "#1a7f37", "brightbrown": "#9a6700",
        "brightblue": "#0969da", "brightmagenta": "#a475f9", "brightcyan": "#3192aa", "brightwhite": "#8c959f",
    },
    "dark": {
        "default": "#e6edf3", "back": "#0d1117", "edge": "#30363d",
        "black": "#484f58", "red": "#ff7b72", "green": "#3fb950", "brown": "#d29922",
        "blue": "#79c0ff", "magenta": "#d2a8ff", "cyan": "#56d4dd", "white": "#b1bac4",
        "brightblack": "#8b949e", "brightred": "#ffa198", "brightgreen": "#56d364", "brightbrown": "#e3b341",
        "brightblue": "#a5d6ff", "brightmagenta": "#e2c5ff", "brightcyan": "#b3f0ff", "brightwhite": "#ffffff",
    },
}  # fmt: skip
"""A terminal's sixteen colours, for a light and for a dark background."""


class _Screen(pyte.Screen):
    """pyte knows no faint text, which it is shown here as grey, as most terminals do."""

    def __init__(self, columns: int, lines: int, answer: Callable[[str], None]) -> None:
        super().__init__(columns, lines)
        self._answer = answer

    def select_graphic_rendition(self, *attrs: int, **more: Any) -> None:
        is_colour = any(attr in (38, 48) for attr in attrs)  # the numbers behind these name a colour
        super().select_graphic_rendition(*(_GREY if a == _FAINT and not is_colour else a for a in attrs), **more)

    def write_process_input(self, data: str) -> None:
        self._answer(data)


class Terminal:
    """A program that runs at a terminal of a given size. ``close`` ends it."""

    def __init__(
        self, command: Sequence[str], *, columns: int, lines: int, folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.columns = columns
        self._pid, self._descriptor = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], list(command), {**environment, "TERM": "xterm-256color"})
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._screen = _Screen(columns, lines, self.type_text)
        self._stream = pyte.ByteStream(self._screen)

    def type_text(self, text: str) -> None:
        """Sends keys to the program."""
        os.write(self._descriptor, text.encode())

    def type_line(self, text: str) -> None:
        """Types a text and presses Enter, in one paste where it has several lines, so that nothing completes it."""
        self.type_text(f"\x1b[200~{text}\x1b[201~" if "\n" in text else text)
        end = "".join(text.rpartition("\n")[2].split())  # a line may be broken where the terminal ends
        self.wait_for(lambda shown: "".join(shown.split()).endswith(end), f"the line {text!r}")
        self.type_text("\r")
        self.read(0.3)

    def clear(self) -> None:
        """Clears the screen as Ctrl-L does."""
        self.type_text("\x0c")
        self.read(0.5)

    def read(self, seconds: float) -> None:
        """Takes up what the program prints in so many seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([self._descriptor], [], [], left)[0]:
                return
            try:
                data = os.read(self._descriptor, _BYTES)
            except OSError:  # the program has ended
                return
            self._stream.feed(data)

    def wait_for(self, is_shown: Callable[[str], bool], what: str) -> None:
        """Reads until the screen satisfies a condition. Raises TimeoutError with the screen if it never does."""
        until = time.monotonic() + LONGEST_SECONDS
        while not is_shown(self.text):
            if time.monotonic() > until:
                raise TimeoutError(f"the terminal never showed {what}:\n{self.text}")
            self.read(0.2)

    def wait_for_prompt(self, prompt: str = "rw_sql>") -> None:
        """Reads until the last line is a prompt without text."""
        self.wait_for(lambda text: text.rstrip().rpartition("\n")[2].split("  ")[0].strip() == prompt, prompt)
        self.read(0.5)

    @property
    def text(self) -> str:
        """The screen's lines."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def html(self, theme: str) -> str:
        """A document that shows the screen up to its last line that is not blank."""
        colours = _COLOURS[theme]
        lines = list(self._lines(colours))
        while lines and not lines[-1].strip():
            lines.pop()
        return (
            f"<!doctype html><meta charset='utf-8'><style>body{{margin:0;background:{colours['back']}}}"
            f"pre{{display:inline-block;margin:0;padding:14px 18px;"
            f"border:1px solid {colours['edge']};border-radius:8px;"
            f"font:13px/15px 'DejaVu Sans Mono',Menlo,Consolas,monospace;color:{colours['default']};"
            f"background:{colours['back']};width:{self.columns}ch}}</style><pre>" + "\n".join(lines) + "</pre>"
        )

    def _lines(self, colours: Mapping[str, str]) -> Iterator[str]:
        for number in range(self._screen.lines):
            row = [self._screen.buffer[number][column] for column in range(self.columns)]
            pieces = []
            for style, cells in groupby(row, key=lambda cell: cell._replace(data="")):
                text = escape("".join(cell.data for cell in cells))
                pieces.append(f'<span style="{_css(style, colours)}">{text}</span>' if _css(style, colours) else text)
            yield "".join(pieces).rstrip()

    def close(self) -> None:
        """Ends the program: by the terminal's end, and after ten seconds by force."""
        os.close(self._descriptor)
        for _ in range(100):
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                return
            time.sleep(0.1)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _css(cell: Any, colours: Mapping[str, str]) -> str:
    front, back = _colour(cell.fg, colours), _colour(cell.bg, colours)
    if cell.reverse:
        front, back = back or colours["back"], front or colours["default"]
    rules = [f"color:{front}"] if front else []
    rules += [f"background:{back}"] if back else []
    rules += ["font-weight:bold"] if cell.bold else []
    rules += ["text-decoration:underline"] if cell.underscore else []
    return ";".join(rules)


def _colour(name: str, colours: Mapping[str, str]) -> str:
    return "" if name == "default" else colours.get(name, f"#{name}")
