"""``check``, ``fmt``, ``test``, ``diff`` and ``apply`` read a folder of SQL in the same way."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from rw_sql.cli.main import app
from rw_sql.cli.sql_files import folder_files
from rw_sql.cli.testing.runner import ViewTest, collect
from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "pipelines"
CONNECTION = "CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '${BROKER}');\n"
SOURCE = (
    "CREATE SOURCE ${env}_s (id INT) WITH (connector = 'kafka', connection = c, topic = '${env}.a') "
    "FORMAT PLAIN ENCODE JSON;\n"
)
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT id FROM dev_s;\n"


def run(*words: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error. Raises the error of a command."""
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files in the wrong order, and an environment."""
    folder = tmp_path / "pipelines"
    (folder / "views").mkdir(parents=True)
    (folder / "a.sql").write_text(VIEW, encoding="utf-8")
    (folder / "views" / "s.sql").write_text(SOURCE + CONNECTION, encoding="utf-8")
    (folder / "dev.env").write_text("BROKER=127.0.0.1:9092\n", encoding="utf-8")
    return folder


def findings(*words: str) -> list[tuple[str, int, int, str]]:
    _, out, _ = run("check", *words, "--output", "json")
    statements = [json.loads(line) for line in out.splitlines()]
    return [
        (Path(each["file"]).name, found["line"], found["column"], found["code"])
        for each in statements
        for found in each["findings"]
    ]


@pytest.mark.parametrize("env", ["dev", "prod"])
def test_the_example_is_right_in_each_environment(env: str, tmp_path: Path) -> None:
    assert run("check", str(PROJECT), "--env", env)[:2] == (0, "")
    assert run("fmt", "--check", str(PROJECT))[:2] == (0, "")
    status, out, _ = run("diff", str(PROJECT), "--env", env, "-w", str(tmp_path / "w"), "--exit-code")
    assert (status, out.splitlines()[-1]) == (2, "12 to create")
    collected = collect([str(PROJECT)], {}, env)
    assert collected.wrong == ()
    assert len([test for test in collected.tests if isinstance(test, ViewTest)]) == len(collected.tests) - 1 >= 8


@pytest.mark.long
def test_the_commands_of_the_example_are_there() -> None:
    """Each command of its README, workflow and hooks has the options that it is given."""
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    shell = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    jobs = yaml.safe_load((PROJECT / "ci" / "workflow.yml").read_text(encoding="utf-8"))["jobs"]
    shell += "\n".join(step["run"] for job in jobs.values() for step in job["steps"] if "run" in step)
    hooks = yaml.safe_load((PROJECT / "ci" / "pre-commit.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    offered = {hook["id"]: hook["entry"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    commands = [offered[hook["id"]] + " " + " ".join(hook.get("args", ["a.sql"])) for hook in hooks]
    commands += [
        line[line.index("rw-sql ") :] for line in re.split(r"\n|; do ", shell) if re.search(r"rw-sql [a-z]", line)
    ]
    assert len(commands) >= 12
    for command in commands:
        words = shlex.split(command.partition(" >")[0].partition(";")[0], comments=True)[1:]
        at = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
        names = [word for word in words[:at] if re.fullmatch(r"[a-z]+", word) and word != "pipelines"]
        status, out, _ = run(*names, "--help")
        assert status == 0, command
        for option in (word for word in words if re.match(r"--?[a-z]", word)):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", out), f"{command}: {option}"


def test_a_folder_is_checked_in_the_order_of_what_names_what(folder: Path) -> None:
    assert run("check", str(folder), "--env", "dev")[:2] == (0, "")
    assert run("check", str(folder), "--var", "BROKER=x:1", "--var", "env=dev")[:2] == (0, "")
    # The same files by themselves are a script.
    names = [str(folder / "a.sql"), str(folder / "views" / "s.sql")]
    assert [code for *_, code in findings(*names, "--env", "dev")] == ["RW203", "RW203"]
    assert findings(*reversed(names), "--env", "dev") == [("s.sql", 1, SOURCE.index("= c,") + 3, "RW203")]


def test_a_missing_semicolon_does_not_hide_what_the_statement_reads(folder: Path) -> None:
    """The statement before it is still checked after the objects that it reads, and so are those behind it."""
    text = "CREATE MATERIALIZED VIEW a AS SELECT id FROM dev_s\nCREATE MATERIALIZED VIEW b AS SELECT idd FROM a;\n"
    (folder / "views" / "a.sql").write_text(text, encoding="utf-8")
    assert findings(str(folder), "--env", "dev") == [("a.sql", 2, 1, "RW101"), ("a.sql", 2, 38, "RW205")]
    with pytest.raises(SqlError) as caught:
        run("diff", str(folder), "-w", str(folder / "w"), "--env", "dev")
    assert caught.value.hint == "end the statement before it with ;"
    assert "HINT: end the statement before it with ;" in run("fmt", "--check", str(folder / "views" / "a.sql"))[2]


def test_findings_have_the_places_of_the_files_as_they_are_written(folder: Path) -> None:
    (folder / "views" / "s.sql").write_text(
        SOURCE.replace("FORMAT", "${nothing} FORMAT").replace("topic =", "topik =") + CONNECTION, encoding="utf-8"
    )
    source = (folder / "views" / "s.sql").read_text(encoding="utf-8")
    assert findings(str(folder), "--env", "dev") == [("s.sql", 1, source.index("${nothing}") + 1, "RW250")]
    (folder / "views" / "s.sql").write_text(source.replace("${nothing} ", ""), encoding="utf-8")
    found = findings(str(folder), "--env", "dev")
    assert ("s.sql", 1, source.index("topik") + 1, "RW204") in found
    # GitHub's annotations are at the same place.
    _, out, _ = run("check", str(folder), "--env", "dev", "--output", "github")
    assert f"s.sql,line=1,endLine=1,col={source.index('topik') + 1}," in out


def test_what_a_folder_does_not_hold_is_found_by_check_too(folder: Path) -> None:
    (folder / "b.sql").write_text(
        "PAUSE SOURCE dev_s;\nCREATE SECRET p WITH (backend = 'meta') AS 'hunter2';\n", encoding="utf-8"
    )
    (folder / "c.sql").write_text(VIEW, encoding="utf-8")
    (folder / "d.sql").write_text(
        "CREATE MATERIALIZED VIEW x AS SELECT id FROM y;\nCREATE MATERIALIZED VIEW y AS SELECT id FROM x;\n",
        encoding="utf-8",
    )
    found = findings(str(folder), "--env", "dev")
    assert [(file, line, code) for file, line, _, code in found if file in ("b.sql", "c.sql")] == [
        ("b.sql", 1, "RW212"),
        ("b.sql", 2, "RW212"),
        ("c.sql", 1, "RW201"),
    ]
    assert [(line, code) for file, line, _, code in found if file == "d.sql"] == [(1, "RW212")]
    assert len(found) == 4
    assert "hunter2" not in run("check", str(folder), "--env", "dev")[1]


def test_statements_of_spark_are_refused_as_diff_refuses_them(folder: Path) -> None:
    text = (
        "CREATE TABLE t (id INT) USING delta;\nINSERT INTO t VALUES (1);\nSELECT 1;\nSET spark.sql.x = 1;\n"
        "CREATE OR REPLACE TEMPORARY VIEW tv AS SELECT 1;\nOPTIMIZE t;\nCREATE SORCE x (id INT);\n"
        "CREATE TABLE u (id INT);\nCREATE TABLE w AS SELECT 1 AS a;\n"
    )
    (folder / "b.sql").write_text(text, encoding="utf-8")
    found = findings(str(folder), "--env", "dev")
    sparks = [("b.sql", line, 1, "RW212") for line in (1, 2, 3, 4, 5, 6, 8, 9)]
    assert found == [*sparks[:6], ("b.sql", 7, 8, "RW101"), *sparks[6:]]
    with pytest.raises(SqlError) as caught:
        run("diff", str(folder), "--env", "dev", "-w", str(folder / "w"))
    assert (caught.value.code, caught.value.line) == ("RW212", 1)
    assert caught.value.message.endswith("connections and secrets; this statement is Spark's")
    assert (caught.value.detail or "").startswith("8 more statements are wrong: ")
    # A table of rw_sql with a mistake looks like one of Spark.
    assert caught.value.hint == (
        "run other statements with rw-sql run; or correct it as a definition of rw_sql: expected description of the "
        "format, found: USING"
    )


def test_a_second_definition_is_refused_whatever_its_form(folder: Path) -> None:
    """Planned one after the other, these definitions would have no error."""
    again = SOURCE.replace("SOURCE", "SOURCE IF NOT EXISTS") + VIEW.replace("CREATE", "CREATE OR REPLACE")
    (folder / "views" / "z.sql").write_text(
        f"{again}CREATE MATERIALIZED VIEW u AS SELECT id FROM v;\n", encoding="utf-8"
    )
    found = findings(str(folder), "--env", "dev")
    assert [(file, line, code) for file, line, _, code in found] == [("z.sql", 1, "RW201"), ("z.sql", 2, "RW201")]
    _, told, _ = run("check", str(folder), "--env", "dev")
    assert f'materialized view "v" at {folder}/views/z.sql:2 is already defined at {folder}/a.sql:1' in told
    with pytest.raises(SqlError, match="is already defined at"):
        run("diff", str(folder), "--env", "dev", "-w", str(folder / "w"))


def test_a_password_in_any_option_is_found_beside_the_other_errors(folder: Path) -> None:
    text = SOURCE.replace("topic", "topik = 'x', topic").replace(
        "ENCODE JSON", "ENCODE AVRO (schema.registry = 'http://r:1',\n schema.registry.password = 'hunter2')"
    )
    (folder / "views" / "s.sql").write_text(CONNECTION + text.replace("(id INT)", ""), encoding="utf-8")
    found = [each for each in findings(str(folder), "--env", "dev") if each[0] == "s.sql"]
    assert [(code, line) for _, line, _, code in found] == [("RW204", 2), ("RW208", 3)]
    with pytest.raises(SqlError) as caught:
        run("diff", str(folder), "--env", "dev", "-w", str(folder / "w"))
    assert caught.value.code == "RW208"
    assert "hunter2" not in caught.value.render()


def test_a_comment_for_renaming_that_belongs_to_no_statement(folder: Path) -> None:
    with (folder / "a.sql").open("a", encoding="utf-8") as file:
        file.write("\n-- rw: renamed from old\n")
    assert findings(str(folder), "--env", "dev") == [("a.sql", 3, 1, "RW212")]


def test_files_in_upper_case_are_read(folder: Path) -> None:
    (folder / "MORE.SQL").write_text("CREATE SCHEMA more;\n", encoding="utf-8")
    assert "MORE.SQL" in [Path(file).name for file in folder_files(str(folder))]


def test_links_of_a_folder_are_followed_or_refused(folder: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "w.sql").write_text(VIEW.replace("VIEW v", "VIEW w"), encoding="utf-8")
    (folder / "shared").symlink_to(shared)
    (shared / "again").symlink_to(folder)
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "x.sql").write_text("nothing", encoding="utf-8")
    assert [Path(file).name for file in folder_files(str(folder))] == ["a.sql", "w.sql", "s.sql"]
    (folder / "gone.sql").symlink_to(tmp_path / "nowhere.sql")
    with pytest.raises(SqlError) as caught:
        run("diff", str(folder), "--env", "dev", "-w", str(tmp_path / "w"))
    assert caught.value.code == "RW408"
    assert "gone.sql" in caught.value.message


def test_an_environment_that_is_not_there(folder: Path, tmp_path: Path) -> None:
    for target in (folder, folder / "views" / "s.sql"):
        status, _, told = run("check", str(target), "--env", "nosuch")
        assert status == 2
        assert "nosuch.env" in told
        assert f'HINT: the environments of "{folder}" are dev; a file nosuch.env defines another' in told
    assert "HINT: did you mean --env dev?" in run("check", str(folder), "--env", "Dev")[2]
    assert "HINT: did you mean --env dev?" in run("check", str(folder), "--env", "dve")[2]
    assert findings(str(folder)) != []
    assert "RW250" in {code for *_, code in findings(str(folder))}


def test_the_name_of_an_environment_needs_an_environment(tmp_path: Path) -> None:
    (tmp_path / "s.sql").write_text(
        "CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '${env}.orders',\n"
        "properties.bootstrap.server = '127.0.0.1:1') FORMAT PLAIN ENCODE JSON;\n",
        encoding="utf-8",
    )
    _, told, _ = run("check", str(tmp_path))
    assert "HINT: --env NAME gives it the value NAME, the name of the environment" in told


def test_variables_of_scripts_are_checked_as_run_replaces_them(tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_text(
        "\\set topic 'a'\nCREATE SOURCE :\"name\" (id INT) WITH (connector = 'kafka', topic = :'topic', topik = 'x',\n"
        "properties.bootstrap.server = '${left}:1') FORMAT PLAIN ENCODE JSON;\nDROP SOURCE :gone;\n",
        encoding="utf-8",
    )
    assert findings(str(script), "--var", "name=s") == [
        ("a.sql", 2, 77, "RW204"),
        ("a.sql", 4, 13, "RW250"),
    ]


def test_a_folder_is_formatted(folder: Path) -> None:
    # A statement that parses only with the values of its variables stays unchanged.
    text = "\\set t 'a'\nCREATE   SOURCE :name (id INT) WITH (connector = 'datagen');\n"
    (folder / "script.sql").write_text(text, encoding="utf-8")
    (folder / "views" / "s.sql").write_text(SOURCE + CONNECTION + "CREATE SOURCE x (${wrong;\n", encoding="utf-8")
    assert run("fmt", "--check", str(folder))[0] == 1
    assert "x (${wrong" in run("fmt", str(folder))[2]
    (folder / "views" / "s.sql").write_text(SOURCE + CONNECTION, encoding="utf-8")
    (folder / "a.sql").write_text(VIEW.replace("AS SELECT", "as  SELECT"), encoding="utf-8")
    assert run("fmt", "--check", str(folder))[0] == 1
    assert run("fmt", str(folder))[0] == 0
    assert run("fmt", "--check", str(folder))[0] == 0
    assert (folder / "views" / "s.sql").read_text(encoding="utf-8") == SOURCE + CONNECTION
    assert (folder / "script.sql").read_text(encoding="utf-8") == text


def test_unit_tests_have_the_definitions_of_an_environment(folder: Path) -> None:
    (folder / "tests").mkdir()
    (folder / "tests" / "v.test.yaml").write_text(
        'definitions: ["../**/*.sql"]\ntests: [{view: v, given: {dev_s: []}, expect: []}]\n', encoding="utf-8"
    )
    (test,) = collect([str(folder)], {}, "dev").tests
    assert isinstance(test, ViewTest)
    assert set(test.definitions) == {"dev_s", "v"}
    (wrong,) = collect([str(folder)], {}).wrong
    assert 'variable "env" has no value' in str(wrong)


def test_the_workflow_is_one_that_github_reads() -> None:
    workflow = yaml.safe_load((PROJECT / "ci" / "workflow.yml").read_text(encoding="utf-8"))
    assert set(workflow["jobs"]) == {"check", "test", "diff", "apply"}
    for job in workflow["jobs"].values():
        for needed in [job.get("needs", [])] if isinstance(job.get("needs", []), str) else job.get("needs", []):
            assert needed in workflow["jobs"]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "run" in step:
                assert subprocess.run(["bash", "-n", "-c", step["run"]], check=False).returncode == 0


def test_a_secret_that_is_created_by_hand_is_not_checked_without_a_catalog(tmp_path: Path) -> None:
    source = (
        "CREATE SOURCE {name} (id INT) WITH (connector = 'kafka', topic = 'orders',\n"
        "properties.sasl.mechanism = 'PLAIN', "
        "properties.security.protocol = 'sasl_ssl', properties.sasl.username = 'me', properties.sasl.password = "
        "SECRET {secret},\nproperties.bootstrap.server = '127.0.0.1:1') FORMAT PLAIN ENCODE JSON;\n"
    )
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "a.sql").write_text(source.format(name="a", secret="by_hand"), encoding="utf-8")
    (folder / "b.sql").write_text(
        source.format(name="b", secret="from_env")
        + "CREATE SECRET from_env WITH (backend = 'env', name = 'PASSWORD');\n",
        encoding="utf-8",
    )
    status, _, told = run("check", str(folder))
    assert (status, "2 files: no errors" in told) == (0, True), told
    assert "unchecked, 1 statement: whether a secret exists that the folder does not define" in told
    # A script must create its secrets, and a catalog shows whether a secret exists.
    assert "RW203" in {code for *_, code in findings(str(folder / "a.sql"))}
    Metastore.open(str(tmp_path / "w")).flush(with_upkeep=True)
    assert "RW203" in {code for *_, code in findings(str(folder), "-w", str(tmp_path / "w"))}
