"""Which jars a Maven coordinate came to on this machine, so that not every process asks Ivy again, for seconds."""

from __future__ import annotations

import os
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def remembered_jars(package: str) -> list[str] | None:
    """The jars of a coordinate as paths; None where it was never resolved here, or one of them is gone."""
    try:
        jars = _file(package).read_text(encoding="utf-8").split("\n")
    except OSError:
        return None
    return jars if all(Path(jar).is_file() for jar in jars) else None


def remember_jars(package: str, found: Sequence[str]) -> None:
    """Keeps what a coordinate was resolved to, paths or ``file:`` URIs.

    Where nothing can be written it is resolved again the next time.
    """
    jars = [jar.removeprefix("file://").removeprefix("file:") for jar in found]
    if not jars or not all(Path(jar).is_file() for jar in jars):
        return
    file = _file(package)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as made:
            made.write("\n".join(jars))
        Path(made.name).replace(file)
    except OSError:
        return


def jar_settings(package: str, config: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a session with a package's jars: as files where they are known and nobody else's setting is
    in the way (``config`` is the caller's), else by its coordinate, which Ivy resolves."""
    jars = remembered_jars(package) if are_jars_ours(config) else None
    return {"spark.jars.packages": package} if jars is None else {"spark.jars": ",".join(jars)}


def are_jars_ours(config: Mapping[str, str]) -> bool:
    """Whether nobody else says which jars Spark starts with: ``spark.jars`` would take the place of theirs."""
    if "PYSPARK_SUBMIT_ARGS" in os.environ or any(key.startswith("spark.jars") for key in config):
        return False
    home = os.environ.get("SPARK_HOME")
    found = find_spec("pyspark") if home is None else None
    place = Path(home) if home is not None else Path(found.origin).parent if found and found.origin else Path()
    return not (Path(os.environ.get("SPARK_CONF_DIR") or place / "conf") / "spark-defaults.conf").exists()


def _file(package: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rw_sql"
    return cache / (re.sub(r"[^\w.=-]+", "-", package) + ".classpath")
