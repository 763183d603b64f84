import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies

from fairlead.errors import CommandInvalid
from fairlead.model.command.argv import AttemptFacts
from fairlead.model.command.reader import FIELDS, read_commands
from fairlead.model.command.spec import (
    CommandSpec,
    Limits,
    SecretSource,
    build_command_argv,
    build_command_definition,
    derive_command_schema,
)
from fairlead.model.definition import DefinitionSpec
from fairlead.model.outcome import Backoff
from tests.anything import json_values, unhurried
from tests.tables import each_case

EXAMPLE = """
[commands.sync-dropbox]
argv = ["/usr/local/bin/zoltag", "sync-dropbox", "--tenant-id", "{tenant.id}", "--provider", "{payload.provider_id}", { if = "payload.path_prefix", argv = ["--path", "{payload.path_prefix}"] }]
timeout = 3600
env = ["PATH", "LANG"]
secrets = { DROPBOX_TOKEN = "env:DROPBOX_TOKEN" }
fatal_exit_codes = [64, 65]
snooze_exit_codes = { 75 = 60 }
"""


def read(**fields: Any) -> CommandSpec:
    return read_commands({"commands": {"tool": {"argv": ["/bin/tool"], **fields}}})["tool"]


def faults(document: Any) -> list[str]:
    with pytest.raises(CommandInvalid) as refused:
        read_commands(document)
    return [fault.path for fault in refused.value.faults]


def facts(**payload: Any) -> AttemptFacts:
    return AttemptFacts(payload=payload, tenant_id="t-1", tenant_slug="acme", job_id="j-1", attempt=1)


def test_a_command_is_read_as_it_is_written() -> None:
    spec = read_commands(tomllib.loads(EXAMPLE))["sync-dropbox"]

    assert spec.key == "sync-dropbox"
    assert spec.timeout == 3600
    assert spec.env == ("PATH", "LANG")
    assert spec.secrets == {"DROPBOX_TOKEN": SecretSource("env", "DROPBOX_TOKEN")}
    assert spec.fatal_exit_codes == {64, 65}
    assert spec.snooze_exit_codes == {75: 60}
    start = ["/usr/local/bin/zoltag", "sync-dropbox", "--tenant-id", "t-1", "--provider", "7"]
    assert build_command_argv(spec, facts(provider_id="7")) == start
    assert build_command_argv(spec, facts(provider_id="7", path_prefix="/a")) == [*start, "--path", "/a"]


def test_what_a_command_does_not_say_has_a_safe_default() -> None:
    spec = read()

    assert (spec.timeout, spec.grace_seconds, spec.umask) == (3600, 5, 0o077)
    assert (spec.tail_bytes, spec.max_log_bytes) == (65_536, 1_048_576)
    assert (spec.env, spec.set_env, spec.secrets) == ((), {}, {})
    assert (spec.cwd, spec.user, spec.group) == (None, None, None)
    assert spec.success_exit_codes == {0}
    assert not spec.fatal_exit_codes
    assert spec.snooze_exit_codes == {}
    assert spec.limits == Limits()


def test_a_file_without_commands_has_none() -> None:
    assert read_commands({}) == {}
    assert read_commands({"pool_size": 3, "commands": {}}) == {}


@each_case(
    ("field", "said", "value"),
    [
        ("description", "Sync", "Sync"),
        ("timeout", 1, 1),
        ("grace_seconds", 0, 0),
        ("grace_seconds", 2.5, 2.5),
        ("env", ["A", "_b", "A"], ("A", "_b")),
        ("set_env", {"A": "", "B": "x y"}, {"A": "", "B": "x y"}),
        ("secrets", {"A": "file:/run/a"}, {"A": SecretSource("file", "/run/a")}),
        ("cwd", "/srv", "/srv"),
        ("umask", "027", 0o027),
        ("umask", "0o027", 0o027),
        ("umask", 0o022, 0o022),
        ("umask", 0, 0),
        ("user", "www-data", "www-data"),
        ("user", 0, 0),
        ("group", 1000, 1000),
        ("limits", {"memory_bytes": "512MB"}, Limits(memory_bytes=512_000_000)),
        (
            "limits",
            {"memory_bytes": "1 GiB", "file_bytes": "10kB"},
            Limits(memory_bytes=2**30, file_bytes=10_000),
        ),
        (
            "limits",
            {"cpu_seconds": 9, "open_files": 64, "processes": 1, "file_bytes": 0},
            Limits(cpu_seconds=9, open_files=64, processes=1, file_bytes=0),
        ),
        ("tail_bytes", 0, 0),
        ("tail_bytes", "8KiB", 8192),
        ("max_log_bytes", "1MB", 1_000_000),
        ("success_exit_codes", [0, 3], {0, 3}),
        ("fatal_exit_codes", [1, 255], {1, 255}),
        ("snooze_exit_codes", {"75": 0.5, "1": 0}, {75: 0.5, 1: 0}),
        ("arg_schema", {"type": "object"}, {"type": "object"}),
        ("max_attempts", 1, 1),
        ("max_running", 2, 2),
        ("max_running_per_tenant", 3, 3),
        ("default_priority", -5, -5),
        ("retention_days", 7, 7),
        ("backoff", {"base_seconds": 1, "factor": 1.5}, Backoff(base_seconds=1, factor=1.5)),
    ],
)
def test_a_field_is_read(field: str, said: Any, value: Any) -> None:
    assert getattr(read(**{field: said}), field) == value


@each_case(
    ("field", "said", "where"),
    [
        ("description", 1, ""),
        ("description", "a\x00", ""),
        ("description", "x" * 10_001, ""),
        *[("timeout", said, "") for said in (0, -1, 2_592_001, 1.5, "60", True)],
        *[("grace_seconds", said, "") for said in (-1, 3601, float("nan"), "5", True)],
        *[("env", said, "") for said in ("PATH", ["A B"], ["A="], [""], [1], {"A": "b"})],
        ("set_env", [], ""),
        ("set_env", {"A": 1}, ".A"),
        ("set_env", {"A": "x\x00"}, ".A"),
        ("set_env", {"1A": "x"}, ".1A"),
        *[
            ("secrets", {"A": said}, ".A")
            for said in ("hush", "env:", "env:A B", "file:a", "vault:/x", 1, "file:/a\n")
        ],
        ("secrets", {"a-b": "env:A"}, ".a-b"),
        *[("cwd", said, "") for said in ("srv", "", "/a\x00", 1)],
        *[("umask", said, "") for said in ("8", "rwx", -1, 0o1000, "1777", True, 1.0)],
        *[("user", said, "") for said in ("", "a b", "a:b", "-x", -1, 2**32, True, 1.0)],
        *[("group", said, "") for said in ("", "a/b", -1)],
        ("limits", 1, ""),
        ("limits", {"memory": 1}, ".memory"),
        *[
            ("limits", {"memory_bytes": said}, ".memory_bytes")
            for said in (0, "512", "1 PB", "MB", -1, 1.5, "9" * 20)
        ],
        *[("limits", {"cpu_seconds": said}, ".cpu_seconds") for said in (0, "1MB", True)],
        ("limits", {"open_files": 3}, ".open_files"),
        ("limits", {"processes": 0}, ".processes"),
        ("tail_bytes", 2**20 + 1, ""),
        ("max_log_bytes", "2GiB", ""),
        *[("success_exit_codes", said, "") for said in ([], 0, [256], [-1], ["0"], [True])],
        *[("fatal_exit_codes", said, "") for said in ([256], {"1": 1}, [0])],
        ("snooze_exit_codes", [75], ""),
        *[("snooze_exit_codes", {said: 1}, f".{said}") for said in ("256", "-1", "x", "07", "")],
        *[("snooze_exit_codes", {"75": said}, ".75") for said in (-1, "60", True, float("inf"))],
        ("snooze_exit_codes", {"0": 60}, ""),
        *[
            ("arg_schema", said, "")
            for said in (1, {"type": "text"}, {"pattern": "("}, {"$ref": "http://example.com"})
        ],
        *[("max_attempts", said, "") for said in (0, 1001, "3", True)],
        ("max_running", 0, ""),
        ("max_running_per_tenant", 2**31, ""),
        ("default_priority", 1_000_001, ""),
        ("retention_days", 0, ""),
        ("backoff", 1, ""),
        ("backoff", {"base": 1}, ".base"),
        ("backoff", {"factor": 0}, ".factor"),
        ("backoff", {"factor": "2"}, ".factor"),
        ("backoff", {"jitter": float("nan")}, ".jitter"),
        ("shell", True, ""),
        ("argv", "tool", ""),
    ],
)
def test_a_field_that_cannot_be_is_refused_with_where(field: str, said: Any, where: str) -> None:
    document = {"commands": {"tool": {"argv": ["/bin/tool"], field: said}}}

    assert faults(document) == [f"commands.tool.{field}{where}"]


def test_a_date_in_a_schema_is_refused() -> None:
    document = tomllib.loads('[commands.x]\nargv = ["/bin/x"]\narg_schema = { const = 2026-01-01 }')

    assert faults(document) == ["commands.x.arg_schema"]


@each_case("key", ["", "1x", "a b", "a/b", "x" * 129, "é"])
def test_a_key_that_no_definition_could_have_is_refused(key: str) -> None:
    assert len(faults({"commands": {key: {"argv": ["/bin/x"]}}})) == 1


@each_case(
    ("document", "where"),
    [
        ({"commands": []}, "commands"),
        ({"commands": {"x": ["/bin/x"]}}, "commands.x"),
        ({"commands": {"x": {}}}, "commands.x.argv"),
        ({"commands": {"a.b": {}}}, 'commands."a.b".argv'),
    ],
)
def test_what_is_no_command_is_refused(document: Any, where: str) -> None:
    assert faults(document) == [where]


def test_all_faults_of_all_commands_are_told_at_once() -> None:
    document = tomllib.loads(
        """
        [commands.a]
        argv = ["a", "{b}", "{payload.c"]
        timeout = 0
        shell = true
        [commands.b]
        set_env = { A = 1 }
        [commands.c]
        argv = ["/bin/c"]
        """
    )

    assert sorted(faults(document)) == [
        "commands.a.argv[0]",
        "commands.a.argv[1]",
        "commands.a.argv[2]",
        "commands.a.shell",
        "commands.a.timeout",
        "commands.b.argv",
        "commands.b.set_env.A",
    ]


def test_a_secret_written_by_mistake_is_not_told_again() -> None:
    with pytest.raises(CommandInvalid) as refused:
        read(secrets={"TOKEN": "hush-hush"})

    assert "hush" not in str(refused.value.as_dict())


def test_a_variable_comes_from_one_place() -> None:
    assert faults({"commands": {"x": {"argv": ["/bin/x"], "env": ["A"], "set_env": {"A": "1"}}}}) == [
        "commands.x.set_env.A"
    ]
    assert faults(
        {"commands": {"x": {"argv": ["/bin/x"], "set_env": {"A": "1"}, "secrets": {"A": "env:A"}}}}
    ) == ["commands.x.secrets.A"]


def test_an_exit_code_means_one_thing() -> None:
    with pytest.raises(CommandInvalid, match="snooze_exit_codes has 75"):
        read(fatal_exit_codes=[75], snooze_exit_codes={"75": 1})
    with pytest.raises(CommandInvalid, match="fatal_exit_codes has 3"):
        read(success_exit_codes=[0, 3], fatal_exit_codes=[3])
    assert read(success_exit_codes=[3], fatal_exit_codes=[0]).fatal_exit_codes == {0}


# The definition


def test_the_definition_says_what_the_file_says_and_no_more() -> None:
    spec = read_commands(tomllib.loads(EXAMPLE))["sync-dropbox"]

    assert build_command_definition(spec) == {
        "key": "sync-dropbox",
        "kind": "command",
        "arg_schema": derive_command_schema(spec),
        "timeout_seconds": 3600,
    }


def test_everything_of_a_definition_can_be_said() -> None:
    said = {
        "description": "Sync",
        "max_attempts": 1,
        "max_running": 2,
        "max_running_per_tenant": 3,
        "default_priority": 0,
        "retention_days": 7,
        "arg_schema": {"type": "object"},
    }

    found = build_command_definition(read(timeout=60, backoff={"factor": 3}, **said))

    assert found.items() >= {**said, "timeout_seconds": 60}.items()
    assert found["backoff"]["factor"] == 3


# The page

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "commands.md").read_text("utf-8")


def test_the_examples_of_the_page_are_read() -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

    assert [key for block in blocks for key in read_commands(tomllib.loads(block))] == [
        "sync-dropbox",
        "thumbnails",
    ]


def test_the_parts_of_the_page_are_read() -> None:
    rows = re.findall(r"^\| `(\{ (?:slot|if|flag|each) = .*? \}|\"--.*?\")` \|", PAGE, re.MULTILINE)

    assert len(rows) == 7
    for row in rows:
        assert read_commands(tomllib.loads(f'[commands.x]\nargv = ["/bin/x", {row}]'))


def test_every_field_is_on_the_page_with_an_example() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \|.*\| `([^`]+)` \|$", PAGE, re.MULTILINE)
    shown = {name: example for names, example in rows for name in re.findall(r"[a-z_]+", names)}

    assert set(shown) == FIELDS
    for name, example in shown.items():
        argv = "" if name == "argv" else 'argv = ["/bin/x"]'
        assert read_commands(tomllib.loads(f"[commands.x]\n{argv}\n{name} = {example}"))


# Anything

names = strategies.sampled_from([*sorted(FIELDS), "if", "slot", "each", "memory_bytes", "A", "75"])
words = strategies.sampled_from(
    ["/bin/x", "{payload.a}", "payload.a", "env:A", "512MB", "077", "{item}", "string"]
)
said_values = strategies.recursive(
    words | json_values | strategies.floats(),
    lambda inner: strategies.lists(inner, max_size=4) | strategies.dictionaries(names, inner, max_size=4),
    max_leaves=10,
)


@unhurried
@given(strategies.dictionaries(names, said_values, max_size=5))
def test_any_table_is_read_or_refused(table: dict[str, Any]) -> None:
    try:
        found = read_commands({"commands": {"tool": {"argv": ["/bin/tool"], **table}}})
    except CommandInvalid as refused:
        assert all(fault.path.startswith("commands.tool") for fault in refused.faults)  # noqa: PT017
    else:
        DefinitionSpec(**{**build_command_definition(found["tool"]), "backoff": Backoff()})
