"""The unit of systemd and the Kubernetes manifest in ``ops``: their tools accept them, and what they name exists."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import socket
import subprocess
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from typer.main import get_command

from rw_sql.cli.main import app
from rw_sql.runtime.status.http_server import StatusServer

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "ops" / "rw-sql.service"
MANIFEST = ROOT / "ops" / "kubernetes.yaml"
PAGE = ROOT / "docs" / "how-to" / "run-as-a-service.md"
VARIABLE = re.compile(r"\bRW_SQL_[A-Z_]*[A-Z]\b")

KUBERNETES = ("1.30", "1.37")
"""The versions of Kubernetes whose schemas check the manifest."""


def unit() -> configparser.RawConfigParser:
    """The unit's sections and keys."""
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keeps the case of the keys
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    return parser


def manifest() -> dict[str, dict[str, Any]]:
    """The documents of the manifest by their kind."""
    documents = list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))
    found = {each["kind"]: each for each in documents}
    assert len(found) == len(documents)
    return found


def pod() -> dict[str, Any]:
    """The specification of the Deployment's pods."""
    found: dict[str, Any] = manifest()["Deployment"]["spec"]["template"]["spec"]
    return found


def container() -> dict[str, Any]:
    """The only container of a pod."""
    (found,) = pod()["containers"]
    return dict(found)


def require_serve(words: list[str]) -> dict[str, str]:
    """Fails unless the words are the command ``rw-sql serve`` with existing options; returns the options."""
    program, command, *rest = words
    assert (PurePosixPath(program).name, command) == ("rw-sql", "serve")
    serve: Any = get_command(app)
    known = {option for found in serve.commands["serve"].params for option in found.opts}
    given = dict(zip(rest[::2], rest[1::2], strict=True))
    assert given.keys() <= known
    return given


def variables_of_code() -> set[str]:
    """The environment variables that rw_sql reads."""
    return {found for path in (ROOT / "rw_sql").rglob("*.py") for found in VARIABLE.findall(path.read_text("utf-8"))}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("true")
    text = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={program}", UNIT.read_text(encoding="utf-8"))
    assert f"ExecStart={program} serve" in text
    copy = tmp_path / UNIT.name
    copy.write_text(text, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_unit_starts_after_the_network_and_restarts_without_a_limit() -> None:
    found = unit()
    assert found["Unit"]["Wants"] == found["Unit"]["After"] == "network-online.target"
    assert found["Unit"]["StartLimitIntervalSec"] == "0"
    assert found["Service"]["Restart"] == "always"
    assert found["Service"]["KillMode"] == "mixed"
    options = require_serve(shlex.split(found["Service"]["ExecStart"]))
    assert options["--warehouse"] == found["Unit"]["RequiresMountsFor"]
    assert set(VARIABLE.findall(found["Service"]["Environment"])) <= variables_of_code()


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("kind", ["Deployment", "Service"])
def test_the_manifest_follows_the_schema_of_kubernetes(version: str, kind: str) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    assert set(manifest()) == {"Deployment", "Service"}
    document = manifest()[kind]
    assert validator.validate(document, version, strict=True) == version
    document["spec"]["selctor"] = {}
    with pytest.raises(validator.ValidationError):
        validator.validate(document, version, strict=True)


def test_the_selectors_of_the_manifest_find_its_pods() -> None:
    deployment, service = manifest()["Deployment"]["spec"], manifest()["Service"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels == service["selector"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"] == {"type": "Recreate"}
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(ports["http"], "http")]


def test_the_probes_of_the_manifest_need_no_token_and_ask_what_the_server_answers() -> None:
    found = container()
    server = StatusServer("127.0.0.1", 0)
    server.is_local = False
    try:
        probes = {name: found[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")}
        assert {probe["port"] for probe in probes.values()} == {"http"}
        answers = {name: server.answer(probe["path"], {}).code for name, probe in probes.items()}
    finally:
        server.close()
    assert answers == {"livenessProbe": HTTPStatus.OK, "readinessProbe": HTTPStatus.SERVICE_UNAVAILABLE}


def test_the_command_of_the_manifest_listens_where_the_probes_ask() -> None:
    found = container()
    options = require_serve([*found["command"], *found["args"]])
    assert int(options["--port"]) == found["ports"][0]["containerPort"]
    assert socket.inet_aton(options["--host"]) == bytes(4)
    memory = {name: int(found["resources"][name]["memory"].removesuffix("Gi")) for name in ("requests", "limits")}
    assert int(options["--driver-memory"].removesuffix("g")) < memory["requests"] == memory["limits"]


def test_the_variables_and_secrets_of_the_manifest_exist() -> None:
    found = container()
    variables = {each["name"]: each for each in found["env"]}
    named = {name for name in variables if VARIABLE.fullmatch(name)}
    assert named <= variables_of_code()
    assert named >= {"RW_SQL_WAREHOUSE", "RW_SQL_HTTP_TOKEN", "RW_SQL_SECRET_KEY_FILE"}
    comment = MANIFEST.read_text(encoding="utf-8").partition("apiVersion")[0]
    created = set(re.findall(r"--from-literal=([\w-]+)=", comment))
    (name,) = re.findall(r"create secret generic (\S+)", comment)
    volume = next(each for each in pod()["volumes"] if each["name"] == "key")["secret"]
    token = variables["RW_SQL_HTTP_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert {token["name"], volume["secretName"]} == {name}
    assert {token["key"], *(item["key"] for item in volume["items"])} == created
    key = PurePosixPath(variables["RW_SQL_SECRET_KEY_FILE"]["value"])
    mounts = {each["name"]: PurePosixPath(each["mountPath"]) for each in found["volumeMounts"]}
    assert [mounts["key"] / item["path"] for item in volume["items"]] == [key]


def test_the_pod_runs_without_privileges_and_can_write_what_the_process_writes() -> None:
    found = container()
    assert pod()["securityContext"]["runAsNonRoot"]
    assert pod()["securityContext"]["runAsUser"] >= 1000
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    empty = {each["name"] for each in pod()["volumes"] if "emptyDir" in each}
    assert {each["name"] for each in pod()["volumes"]} == {each["name"] for each in found["volumeMounts"]}
    writable = {each["mountPath"] for each in found["volumeMounts"] if each["name"] in empty}
    home = next(each["value"] for each in found["env"] if each["name"] == "HOME")
    assert writable == {"/tmp", home}
    assert found["workingDir"] == home


def test_the_page_shows_the_files_and_has_no_copy_of_them() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for file in (UNIT, MANIFEST):
        path = file.relative_to(ROOT).as_posix()
        assert f'\n--8<-- "{path}"\n' in text
        assert f"`{path}`" in text
    for line in ("[Service]", "RestartSec=", "kind: Deployment", "livenessProbe", "secretKeyRef"):
        assert line not in text
