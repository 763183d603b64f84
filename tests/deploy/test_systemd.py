"""The systemd units."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, ROOT, UNITS, read_unit, require_command
from tests.tables import each_case

ENVIRONMENT = (DEPLOY / "systemd" / "fairlead.env").read_text("utf-8")
LONG_RUNNING = [path for path in UNITS if path.stem != "fairlead-migrate"]


def test_there_is_a_unit_for_each_process() -> None:
    assert [path.stem.removeprefix("fairlead-") for path in UNITS] == [
        "migrate",
        "scheduler",
        "serve",
        "worker",
    ]


@each_case("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_a_command_that_exists_as_an_ordinary_user(path: Path) -> None:
    unit = read_unit(path)
    [started] = unit["ExecStart"]
    program, *words = shlex.split(started)
    assert program == "/opt/fairlead/bin/fairlead"
    require_command(words)
    assert unit["User"] == ["fairlead"]
    assert unit["EnvironmentFile"] == ["/etc/fairlead/fairlead.env"]


@each_case("path", LONG_RUNNING, ids=lambda path: path.stem)
def test_a_process_starts_after_the_migration_and_lets_its_jobs_end(path: Path) -> None:
    unit = read_unit(path)
    assert "fairlead-migrate.service" in unit["After"][0].split()
    assert "fairlead-migrate.service" in unit["Wants"][0].split()
    assert "Requires" not in unit  # or a new migration would stop everything
    assert unit["KillMode"] == ["mixed"]
    assert int(unit["TimeoutStopSec"][0]) > 35
    assert unit["RestartPreventExitStatus"] == ["3"]


def test_the_environment_has_settings_that_exist() -> None:
    settings = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    named = re.findall(r"^(FAIRLEAD_\w+)=", ENVIRONMENT, re.MULTILINE)
    assert "FAIRLEAD_DATABASE_URL" in named
    assert [name for name in named if f"`{name}`" not in settings] == []


@pytest.mark.thorough
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze. Not checked: that systemd takes the units")
    for path in UNITS:  # the program is not there, which is all that may be wrong
        text = path.read_text("utf-8").replace("/opt/fairlead/bin/fairlead", "/bin/true")
        (tmp_path / path.name).write_text(text)
    argv = [analyze, "verify", "--man=no", *(str(tmp_path / path.name) for path in UNITS)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "fairlead" in line or str(tmp_path) in line]
    assert (done.returncode, said) == (0, [])
