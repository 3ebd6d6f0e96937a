"""JupyterLab's extension: its words are the grammar's, and its description leads to its file."""

from __future__ import annotations

import json

from rw_sql.magics.lab_keywords import FILE, with_keywords

FOLDER = FILE.parents[1]


def test_the_words_are_those_of_the_grammar() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert " SELECT " in text
    assert with_keywords(text) == text, "run python -m rw_sql.magics.lab_keywords"


def test_the_description_leads_to_the_file() -> None:
    package = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    build = package["jupyterlab"]["_build"]
    assert FOLDER / build["load"] == FILE
    text = FILE.read_text(encoding="utf-8")
    assert f"const NAME = '{package['name']}'" in text
    assert f"module !== '{build['extension']}'" in text
    pyproject = (FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"labextension" = "share/jupyter/labextensions/{package["name"]}"' in pyproject
