"""Runs a real schema registry for development and tests. It is Apicurio Registry, which keeps its schemas in memory.

At the first start, the resolver that is part of Spark's jars downloads the registry, which is then unpacked into the
user's cache folder. The registry serves Confluent's API below ``/apis/ccompat/v7``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from rw_sql.cli.servers.local_server import (
    LocalServer,
    end_process,
    java_program,
    running,
    spark_home,
    starting_alone,
)
from rw_sql.errors import FILE_UNREADABLE, UPSTREAM_UNREACHABLE, SqlError
from rw_sql.runtime.spark.jar_cache import cache_folder

VERSION = "2.6.13.Final"
API = "/apis/ccompat/v7"
"""The path below which the registry serves Confluent's API."""

_GROUP, _NAME = "io.apicurio", "apicurio-registry-app"
_RESOLVE_ATTEMPTS = 3
_FILE, _LOG = "registry.json", "registry.log"

_SETTINGS = """<ivysettings>
  <settings defaultResolver="all"/>
  <resolvers>
    <chain name="all" returnFirst="true">
      <ibiblio name="local" m2compatible="true" root="file://${user.home}/.m2/repository/" checkmodified="false"/>
      <ibiblio name="central" m2compatible="true"/>
    </chain>
  </resolvers>
</ivysettings>
"""
_MODULE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="rw_sql" module="dev"/>
  <dependencies>
    <dependency org="{_GROUP}" name="{_NAME}" rev="{VERSION}" transitive="false">
      <artifact name="{_NAME}" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryInfo:
    """A running registry. The fields are the registry's process, the address of its API (the value of
    ``schema.registry``), and its folder."""

    pid: int
    url: str
    folder: str


def start_registry(folder: str | Path, port: int = 8085) -> RegistryInfo:
    """Starts a registry, and returns when the registry responds. If the folder's registry is already running, returns
    the running registry.

    ``port`` 0 selects a free port, which is stored in the folder. The registry continues to run after this process has
    ended, but its schemas are lost when the registry stops. Raises SqlError UPSTREAM_UNREACHABLE, with the end of the
    registry's log, if the registry does not start.
    """
    home = Path(folder).absolute()
    home.mkdir(parents=True, exist_ok=True)
    with starting_alone(home):
        return is_running(home) or _start(home, port)


def _start(home: Path, port: int) -> RegistryInfo:
    runner = registry_runner()
    server = LocalServer(name="registry", folder=home, file=_FILE, console=_LOG, logs=(_LOG,))
    at = server.port(port)
    command = [
        java_program(),
        # Like the broker, the registry should start quickly and leave the cores to its clients.
        *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"),
        *(f"-Dquarkus.http.port={at}", "-Dquarkus.http.host=127.0.0.1", "-Dquarkus.log.level=WARN"),
        # Prevents the registry from asking another machine for newer versions.
        "-Dquarkus.analytics.disabled=true",
        *("-jar", str(runner)),
    ]
    url = f"http://127.0.0.1:{at}{API}"
    pid = server.start(command, {"url": url, "folder": str(home), "port": at}, url, lambda: is_answering(url))
    return RegistryInfo(pid=pid, url=url, folder=str(home))


def stop_registry(folder: str | Path) -> bool:
    """Stops the registry of a folder and waits until the registry has ended. Returns False if no registry was
    running."""
    info = is_running(folder)
    if info is None:
        return False
    end_process(info.pid)
    return True


def is_running(folder: str | Path) -> RegistryInfo | None:
    """The registry of a folder, if its process is alive; otherwise None."""
    told = running(Path(folder).absolute() / _FILE)
    return None if told is None else RegistryInfo(pid=told["pid"], url=told["url"], folder=told["folder"])


def is_answering(url: str, *, seconds: float = 5.0) -> bool:
    """True if Confluent's API responds at this address."""
    try:
        with urllib.request.urlopen(f"{url}/subjects", timeout=seconds) as answer:
            return isinstance(json.load(answer), list)
    except (OSError, ValueError):
        return False


def registry_runner() -> Path:
    """Returns the path of the registry's runnable jar in the user's cache folder. The first call downloads and unpacks
    the registry."""
    jar = f"{_NAME}-{VERSION}-runner.jar"
    try:
        cache = cache_folder()
        made = cache / f"{_NAME}-{VERSION}"
        if (made / jar).is_file():
            return made / jar
        cache.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(dir=cache)
    except OSError as error:
        raise SqlError(
            FILE_UNREADABLE,
            f"the registry cannot be stored in the cache folder: {error.strerror or error}",
            hint="export XDG_CACHE_HOME=PATH, of a folder that this process can write",
        ) from error
    with scratch as work:
        archive = _resolve(Path(work))
        unpacked = Path(work) / "unpacked"
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise SqlError(
                FILE_UNREADABLE,
                f"{archive} cannot be unpacked: {error}",
                hint="delete the file; the next start downloads it again",
            ) from error
        found = next(unpacked.rglob(jar), None)
        if found is None:
            raise SqlError(
                FILE_UNREADABLE, f"{archive} has no {jar}", hint="delete the file; the next start downloads it again"
            )
        try:
            found.parent.rename(made)
        except OSError:
            if not (made / jar).is_file():  # Another process has unpacked the archive in the meantime.
                shutil.rmtree(made, ignore_errors=True)
                found.parent.rename(made)
    return made / jar


def _resolve(work: Path) -> Path:
    """Downloads the archive with Ivy, the resolver behind ``spark-submit --packages``. (``--packages`` itself resolves
    only jars.)"""
    ivy = next((spark_home("registry") / "jars").glob("ivy-*.jar"))
    (work / "ivysettings.xml").write_text(_SETTINGS, encoding="utf-8")
    (work / "ivy.xml").write_text(_MODULE, encoding="utf-8")
    listed = work / "found"
    command = [
        *(java_program(), "-Xmx128m", *os.environ.get("SPARK_SUBMIT_OPTS", "").split(), "-jar", str(ivy)),
        *("-settings", str(work / "ivysettings.xml"), "-ivy", str(work / "ivy.xml")),
        *("-cache", str(work / "cache"), "-cachepath", str(listed)),
    ]
    done: subprocess.CompletedProcess[str] | None = None
    for _ in range(_RESOLVE_ATTEMPTS):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode == 0 and listed.is_file():
            paths = [Path(path) for path in listed.read_text(encoding="utf-8").strip().split(os.pathsep)]
            if archives := [path for path in paths if path.name.endswith(".tar.gz") and path.is_file()]:
                return archives[0]
    raise SqlError(
        UPSTREAM_UNREACHABLE,
        f"the registry could not be downloaded (package {_GROUP}:{_NAME}:{VERSION})",
        detail="\n".join((done.stdout + done.stderr if done else "").strip().splitlines()[-8:]),
        hint="behind a proxy: export SPARK_SUBMIT_OPTS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'",
    )
