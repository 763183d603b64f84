"""What the README shows is what happens."""

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx2
import psycopg
import pytest

from fairlead import Fairlead, Settings
from fairlead.cli.demo import add_demo, make_demo
from fairlead.cli.dev_access import MEMBER
from tests.dev import dev
from tests.processes import SECONDS, run, started

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^\.venv/bin/fairlead (.*)$", README, re.MULTILINE)


def test_the_first_job_runs_in_dev_is_in_the_console_for_the_user_it_names_and_the_transaction_joins(
    tmp_path: Path, database_url: str
) -> None:
    """What a newcomer does: save hello.py, start dev with it, run it, sign in, look."""
    first, joined = PYTHON
    (tmp_path / "hello.py").write_text(first)
    env = {"FAIRLEAD_DATABASE_URL": database_url}
    assert 'make dev ARGS="hello:fl"' in README
    assert "fairlead dev hello:fl" in README
    assert f"`{MEMBER}`" in README
    with dev(tmp_path, database_url, "hello:fl") as running:
        with started([sys.executable, "hello.py"], env=env, cwd=tmp_path) as process:
            output, _ = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, output
        job, _, greeting = output.strip().partition(" ")
        assert greeting == "Hello, Ada"
        assert running.said["tenant_admin_email"] == MEMBER
        assert f"/console/jobs/{job}" in _jobs_page(running.said)

        with psycopg.connect(database_url) as connection:
            connection.execute("create table users (name text)")
        script = f"DATABASE_URL = {database_url!r}\n{joined}"
        with started([sys.executable, "-c", script], env=env, cwd=tmp_path) as process:
            output, _ = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, output
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select count(*) from users").fetchone() == (1,)
        assert connection.execute(GREETINGS).fetchone() == (2,)


GREETINGS = """
select count(*) from fairlead.jobs j join fairlead.job_definitions d on d.id = j.definition_id where d.key = 'greet'
"""


def _jobs_page(said: Mapping[str, str]) -> str:
    """The console's list of the jobs that README says to search for."""
    assert "search for `definition:greet`" in README
    with httpx2.Client(base_url=said["url"], follow_redirects=True) as browser:
        signing = {"email": said["tenant_admin_email"], "password": said["password"]}
        browser.post("/console/sign-in", data=signing)
        return str(browser.get("/console/jobs", params={"q": "definition:greet"}).text)


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
