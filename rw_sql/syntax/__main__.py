"""Writes the files that are generated from the grammar, or lists the stale files: ``python -m rw_sql.syntax
[--check]``.

The files are ``grammar/tables.json`` and some pages of ``docs/reference``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rw_sql.syntax.parsing.lalr_tables import kept_text
from rw_sql.syntax.reference import pages

ROOT = Path(__file__).parents[2]


def made_files() -> dict[Path, str]:
    """Every generated file of the checkout, with the content that the file should have."""
    reference = {ROOT / "docs" / "reference" / name: text for name, text in pages().items()}
    return {ROOT / "grammar" / "tables.json": kept_text(), **reference}


def stale_files() -> list[Path]:
    """The generated files whose content is out of date."""
    return [
        path for path, text in made_files().items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str]) -> int:
    """Writes the stale files and returns the exit status. With ``--check``, lists the stale files instead of writing
    them, and returns 1 if there are any."""
    stale = stale_files()
    made = made_files()
    for path in stale:
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)} {'is out of date' if '--check' in arguments else 'written'}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
