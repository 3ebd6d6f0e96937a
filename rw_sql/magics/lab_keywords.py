"""Writes the language's keywords into the JupyterLab extension: ``python -m rw_sql.magics.lab_keywords``."""

from __future__ import annotations

import re
from pathlib import Path

from rw_sql.cli.shell.prompt import keywords

FILE = Path(__file__).parents[2] / "labextension" / "static" / "remoteEntry.js"
_LIST = re.compile(r"new Set\('[^']*'\.split")


def with_keywords(text: str) -> str:
    """Returns the extension's source text with the grammar's current keywords."""
    return _LIST.sub(f"new Set('{' '.join(sorted(keywords()))}'.split", text)


if __name__ == "__main__":
    FILE.write_text(with_keywords(FILE.read_text(encoding="utf-8")), encoding="utf-8")
