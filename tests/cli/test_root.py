"""`fairlead` itself: its commands, found when they are called."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import fairlead as package
from fairlead.cli import main
from fairlead.cli.root import COMMANDS, SECTIONS
from fairlead.errors import InvalidInput
from fairlead.load import find_app, load_app
from tests.processes import FAIRLEAD, run, started
from tests.tables import each_case
from tests.waiting import SECONDS


def test_every_command_is_where_it_is_said_to_be() -> None:
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None, name
        assert command.name == name
    assert main.get_command(context, "nosuch") is None
    assert all(len(line) <= 75 and line.endswith(".") for _, line in COMMANDS.values())


def test_help_is_given_whatever_the_settings_say(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "fairlead.toml")

    helped = run("--help", env={"FAIRLEAD_CONFIG": nowhere})
    refused = run("jobs", "list", env={"FAIRLEAD_CONFIG": nowhere})

    assert (helped.returncode, helped.stderr) == (0, "")
    assert all(f"\n  {name} " in helped.stdout for name in COMMANDS)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.split() == (
        f"error [setting_invalid] FAIRLEAD_CONFIG names {nowhere}, and there is no such file.".split()
    )


HELP = "from fairlead.cli import main; main({}, standalone_mode=False)"
DRIVERS = {"psycopg", "structlog", "fairlead.library.app"}
OF_COMMANDS = {f"fairlead.cli.{name}" for name in ("bench", "dev", "jobs", "worker", "workflows")}


@each_case(
    ("code", "unneeded"),
    [
        ("import fairlead", DRIVERS),
        (HELP.format(["--help"]), DRIVERS | OF_COMMANDS),
        (HELP.format(["jobs", "--help"]), {"fastapi", "uvicorn", "fairlead.bench", "fairlead.server"}),
    ],
)
def test_what_is_not_needed_is_not_imported(code: str, unneeded: set[str]) -> None:
    looking = f"import sys\n{code}\nsys.exit(str(sorted({unneeded} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", looking], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def test_every_public_name_of_the_package_is_there() -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None, name
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'Fairled'"):
        package.Fairled  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.thorough
def test_the_collector_rests_while_a_command_is_imported_and_no_longer() -> None:
    code = (
        "import atexit, gc, sys\nfrom fairlead.cli.start import main\n"
        "atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 10_000))\n"
        "sys.argv = ['fairlead', 'jobs', '--help']\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "True True"


@pytest.mark.parametrize("argv", [("doctor",), ("jobs", "list", "--json")], ids=" ".join)
def test_a_reader_that_has_gone_ends_a_command_without_a_word(
    database_url: str, argv: tuple[str, ...]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    env = {"FAIRLEAD_DATABASE_URL": database_url}
    with started([FAIRLEAD, *argv], env=env, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        _, wrong = process.communicate(timeout=SECONDS)

    assert (process.returncode, wrong) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        (
            "from below import x\n",
            "ZeroDivisionError: division by zero",
            "ZeroDivisionError: division by zero",
        ),
        (
            "import nosuch_library\n",
            "ModuleNotFoundError: No module named 'nosuch_library'",
            "ModuleNotFoundError: No module named 'nosuch_library'",
        ),
        ("def f(:\n", "SyntaxError: invalid syntax (broken.py, line 1)", "SyntaxError: invalid syntax"),
    ],
    ids=["its-own", "a-library", "syntax"],
)
def test_a_module_that_cannot_be_imported_is_named_with_its_own_frames_only(
    tmp_path: Path, text: str, first: str, last: str
) -> None:
    (tmp_path / "broken.py").write_text(text)
    (tmp_path / "below.py").write_text("x = 1 / 0\n")

    with started([FAIRLEAD, "worker", "broken:fl"], env={}, cwd=tmp_path) as process:
        said, _ = process.communicate(timeout=SECONDS)

    lines = said.splitlines()
    assert process.returncode == 1
    assert lines[0] == f"error [invalid_input] The module 'broken' cannot be imported: {first}"
    assert lines[-1] == last
    files = [line.split(chr(34))[1] for line in lines if line.startswith("  File ")]
    assert files
    assert {str(Path(file).parent) for file in files} == {str(tmp_path)}


RUNS = """
import asyncio
main = asyncio.sleep(0)
try:
    asyncio.run(main)
finally:
    main.close()
"""


@pytest.mark.parametrize(
    ("app", "text", "hint"),
    [
        ("hello.py", "", "Give the module, not its file: hello:fl."),
        ("hello.py:app", "", "Give the module, not its file: hello:app."),
        ("hello:fl", "import sys\nsys.exit(3)\n", "exits while it is imported. Put its script code"),
        ("hello:fl", RUNS, "Put its script code below"),
    ],
    ids=["file", "file-and-name", "exits", "runs"],
)
async def test_a_common_mistake_in_naming_or_writing_a_module_is_answered_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: str, text: str, hint: str
) -> None:
    (tmp_path / "hello.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "hello", raising=False)

    with pytest.raises(InvalidInput, match=re.escape(hint)):
        load_app(app)


def test_what_a_module_refuses_itself_is_said_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("from fairlead import Fairlead\nfl = Fairlead()\n")
    env = {"FAIRLEAD_POOL_SIZE": "many"}
    with started([FAIRLEAD, "worker", "broken:fl"], env=env, cwd=tmp_path) as process:
        said, _ = process.communicate(timeout=SECONDS)
    assert said.startswith("error [setting_invalid] Invalid value 'many' for the setting pool_size")


@pytest.mark.parametrize(
    ("given", "meant"), [("job", "jobs"), ("enqueue", "jobs enqueue"), ("tennants", "tenants")]
)
def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(given: str, meant: str) -> None:
    refused = run(given, env={})

    assert refused.returncode == 2
    assert f"No such command '{given}'. Did you mean: fairlead {meant}?" in refused.stderr
    assert "Did you mean" not in run("xyzzy", env={}).stderr


def test_a_mistyped_module_or_name_is_answered_with_the_one_that_was_meant(tmp_path: Path) -> None:
    (tmp_path / "greetings.py").write_text("from fairlead import Fairlead\n\nfl = Fairlead()\n")

    with pytest.raises(InvalidInput, match=r"Did you mean greetings:fl\?"):
        find_app("greeting:fl", tmp_path)
    with pytest.raises(InvalidInput, match="such as greetings:fl"):
        find_app("greetings:f", tmp_path)


def test_every_command_is_in_one_section_of_the_help() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(COMMANDS)
