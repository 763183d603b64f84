"""What the README shows is what happens."""

import re
import shlex
import sys
from pathlib import Path

import psycopg
import pytest

from fairlead import Fairlead, Settings
from fairlead.cli.demo import add_demo, make_demo
from tests.processes import run, started

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^\.venv/bin/fairlead (.*)$", README, re.MULTILINE)


def test_the_first_job_runs_as_printed_and_the_transaction_joins(database_url: str) -> None:
    first, joined = PYTHON
    env = {"FAIRLEAD_DATABASE_URL": database_url}
    with started([sys.executable, "-c", first], env=env) as process:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
    assert output.strip().endswith(" Hello, Ada")

    with psycopg.connect(database_url) as connection:
        connection.execute("create table users (name text)")
    script = f"DATABASE_URL = {database_url!r}\n{joined}"
    with started([sys.executable, "-c", script], env=env) as process:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select count(*) from users").fetchone() == (1,)
        assert connection.execute("select count(*) from fairlead.jobs").fetchone() == (2,)


@pytest.fixture
async def demo(settings: Settings) -> None:
    fl = Fairlead(settings=settings)
    add_demo(fl)
    async with fl:
        await make_demo(fl)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_works_as_printed(demo: None, database_url: str, command: str) -> None:
    result = run(*shlex.split(command), env={"FAIRLEAD_DATABASE_URL": database_url})
    assert result.returncode == 0, result.stderr
