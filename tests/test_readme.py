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
from tests.processes import run, started
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
START = README.partition("## Start")[2].partition("\n## ")[0]
CLONE = README.partition("## From a clone")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^\.venv/bin/fairlead (.*)$", CLONE, re.MULTILINE)


def test_the_start_shows_ones_own_job_in_the_console_and_code_enqueues_and_joins_a_transaction(
    tmp_path: Path, database_url: str
) -> None:
    """What a newcomer does: save hello.py, start dev with it, enqueue, sign in, look; then enqueue from code.

    The installation is proved by `make release`.
    """
    hello, first, joined = PYTHON
    assert hello in START
    install, *commands = re.findall(r"```sh\n(.*?)\n```", START, re.DOTALL)
    assert install == "python3 -m venv .venv && .venv/bin/pip install '/path/to/fairlead[embedded]'"
    (_, *dev_app), (_, *enqueue) = [shlex.split(one) for one in commands]
    (tmp_path / "hello.py").write_text(hello)
    assert f"`{MEMBER}`" in START
    assert dev_app[0] == "dev"
    with dev(tmp_path, database_url, *dev_app[1:]) as running:
        running.wait_for("serving greet")
        told = run(*enqueue, env={"FAIRLEAD_DATABASE_URL": database_url})
        assert told.returncode == 0, told.stderr
        job = told.stdout.split()[-1]
        assert running.job_when(job, "succeeded")["output"] == "Hello, Ada"
        assert running.said["tenant_admin_email"] == MEMBER
        assert f"/console/jobs/{job}" in _jobs_page(running.said)

        (tmp_path / "first.py").write_text(first)
        assert _run_python("first.py", folder=tmp_path, database_url=database_url).endswith(" Hello, Grace")

        with psycopg.connect(database_url) as connection:
            connection.execute("create table users (name text)")
        script = f"DATABASE_URL = {database_url!r}\n{joined}"
        _run_python("-c", script, folder=tmp_path, database_url=database_url)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select count(*) from users").fetchone() == (1,)
        assert connection.execute(GREETINGS).fetchone() == (3,)


def _run_python(*argv: str, folder: Path, database_url: str) -> str:
    env = {"FAIRLEAD_DATABASE_URL": database_url}
    with started([sys.executable, *argv], env=env, cwd=folder) as process:
        output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, output
    return output.strip()


GREETINGS = """
select count(*) from fairlead.jobs j join fairlead.job_definitions d on d.id = j.definition_id where d.key = 'greet'
"""


def _jobs_page(said: Mapping[str, str]) -> str:
    """The console's list of the jobs that README says to search for."""
    assert "search for\n`definition:greet`" in START
    with httpx2.Client(base_url=said["url"], follow_redirects=True, timeout=SECONDS) as browser:
        signing = {"email": said["tenant_admin_email"], "password": said["password"]}
        browser.post("/console/sign-in", data=signing)
        return str(browser.get("/console/jobs", params={"q": "definition:greet"}).text)


@pytest.fixture
async def demo(settings: Settings) -> None:
    fl = Fairlead(settings=settings)
    add_demo(fl)
    async with fl:
        await make_demo(fl)


def test_each_command_works_as_printed(demo: None, database_url: str) -> None:
    assert COMMANDS
    for command in COMMANDS:
        result = run(*shlex.split(command), env={"FAIRLEAD_DATABASE_URL": database_url})
        assert result.returncode == 0, f"{command}: {result.stderr}"


MISTAKES = {
    ("demo.gret", "--tenant", "demo"): "Did you mean demo.greet?",
    ("exprt", "--tenant", "demo"): "Did you mean demo.export?",
    ("unlike.anything", "--tenant", "demo"): "`fairlead definitions list` lists",
    ("demo.greet",): "`fairlead tenants list` lists",
}


def test_a_beginners_mistake_is_answered_with_what_to_do(demo: None, database_url: str) -> None:
    for given, told in MISTAKES.items():
        result = run("jobs", "enqueue", *given, env={"FAIRLEAD_DATABASE_URL": database_url})
        assert (given, result.returncode) == (given, 1)
        assert told in " ".join(result.stderr.split())
