import os
import stat
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import CommandInvalid, SettingInvalid
from fairlead.handlers.commands import SecretMissing, load_commands
from tests.handlers.commands import command
from tests.tables import each_case

needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="needs root, to run commands as another user: sudo make test"
)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "program"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def refusal(*argv: Any, **fields: Any) -> str:
    with pytest.raises(CommandInvalid) as caught:
        command(*argv, **fields)
    [fault] = caught.value.faults
    assert fault.path.startswith("commands.work.")
    return f"{fault.path.removeprefix('commands.work.')}: {fault.message}"


def test_an_executable_that_only_its_owner_can_change_is_taken(program: Path) -> None:
    assert command(str(program)).key == "work"


def test_an_executable_that_is_missing_or_none_is_refused(program: Path) -> None:
    assert (
        refusal(str(program.parent / "missing"))
        == f"argv[0]: {program.parent}/missing does not exist or is not a file"
    )
    assert "not a file" in refusal(str(program.parent))
    program.chmod(0o644)
    assert refusal(str(program)) == f"argv[0]: {program} is not executable"


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("up", [0, 1, 2])
def test_an_executable_that_everybody_can_change_or_replace_is_refused(
    program: Path, tmp_path: Path, up: int, *, linked: bool
) -> None:
    place = [program, *program.parents][up]
    named = program
    if linked:
        named = tmp_path.parent / f"{tmp_path.name}-link"
        named.symlink_to(program)
    place.chmod(stat.S_IMODE(place.stat().st_mode) | stat.S_IWOTH)

    assert refusal(str(named)) == f"argv[0]: {place} is writable by every user: chmod o-w {place}"


def test_a_link_that_everybody_can_replace_is_refused(program: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "link").symlink_to(program)
    shared.chmod(0o777)

    assert f"{shared} is writable by every user" in refusal(str(shared / "link"))


def test_a_folder_in_which_nobody_can_replace_the_files_of_others_will_do(program: Path) -> None:
    program.parent.chmod(0o1777)

    assert command(str(program)).key == "work"


def test_a_working_directory_must_be_there(tmp_path: Path) -> None:
    assert refusal("/bin/true", cwd=str(tmp_path / "no")) == f"cwd: {tmp_path}/no is not a folder"


@needs_root
def test_an_unknown_user_and_uncounted_processes_are_refused() -> None:
    assert "unknown user or group" in refusal("/bin/true", user="nobody-at-all")
    assert "does not count root's processes" in refusal("/bin/true", limits={"processes": 10})
    assert command("/bin/true", user="nobody", limits={"processes": 10}).uid == 65534


def test_secrets_must_be_there_and_be_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABSENT", raising=False)
    monkeypatch.setenv("STRANGE", os.fsdecode(b"canary\xff"))
    (tmp_path / "nul").write_bytes(b"canary\0")
    (tmp_path / "bytes").write_bytes(b"canary\xff")

    found = [
        refusal("/bin/true", secrets={"S": source})
        for source in (
            "env:ABSENT",
            "env:STRANGE",
            f"file:{tmp_path}/absent",
            f"file:{tmp_path}/nul",
            f"file:{tmp_path}/bytes",
        )
    ]

    assert found == [
        "secrets.S: the variable ABSENT is not set",
        "secrets.S: STRANGE is not UTF-8 text",
        f"secrets.S: the file {tmp_path}/absent cannot be read: No such file or directory",
        f"secrets.S: {tmp_path}/nul has NUL in it",
        f"secrets.S: {tmp_path}/bytes is not UTF-8 text",
    ]


def test_a_secret_is_read_anew_for_each_attempt(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("first\n")
    one = command("/bin/true", secrets={"S": f"file:{file}"})

    file.write_text("second\n")
    assert one.environment() == ({"S": "second"}, ["second"])
    file.unlink()
    with pytest.raises(SecretMissing, match="cannot be read"):
        one.environment()


@each_case(
    ("slot", "marked"),
    [
        ("{payload.a.token}", True),
        ("{payload.a.name}", False),
        ({"if": "payload.a.token", "argv": ["x"]}, False),
    ],
)
def test_a_secret_of_the_payload_cannot_be_an_argument(slot: Any, *, marked: bool) -> None:
    token = {"type": "string", "writeOnly": True}
    schema = {"properties": {"a": {"properties": {"token": token, "name": {"type": "string"}}}}}

    if marked:
        assert "must not be in an argument" in refusal("/bin/echo", slot, arg_schema=schema)
    else:
        assert command("/bin/echo", slot, arg_schema=schema).key == "work"


def test_a_file_that_is_not_there_lists_nothing_and_one_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    assert load_commands(tmp_path / "no.toml") == {}
    (tmp_path / "bad.toml").write_text("[commands")
    with pytest.raises(SettingInvalid, match="not valid TOML"):
        load_commands(tmp_path / "bad.toml")
    (tmp_path / "good.toml").write_text('[commands.hello]\nargv = ["/bin/true"]\n')
    assert set(load_commands(tmp_path / "good.toml")) == {"hello"}
