"""Real agents of a real server: jobs of one host, whatever dies between the two."""

import json
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from fairlead.actions import access, definitions, hosts
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.model.command import definition_of
from fairlead.model.host import Host
from fairlead.store import tenants
from tests import given
from tests.acceptance.fleet import QUICK, ROOT, Fleet, WorkerUnderTest
from tests.handlers.commands import MARK, marked
from tests.processes import FAIRLEAD, free_port, started, until

LEASE = 3.0
# Where no lease is to be lost, a machine that stumbles must not decide.
LONG = 120.0
# A rescued job waits up to 2 s; and this machine may be busy.
MARGIN = 8.0

# Says something, tells how far it is, and goes on when it may.
TALKS = """
import os, pathlib, time
here = pathlib.Path(os.environ["FOLDER"], os.environ["FAIRLEAD_JOB_ID"] + "." + os.environ["FAIRLEAD_ATTEMPT"])
print("one", flush=True)
os.write(int(os.environ["FAIRLEAD_PROGRESS_FD"]), b"50 half\\n")
here.with_name(here.name + ".draft").write_text(str(os.getpid()))
here.with_name(here.name + ".draft").rename(here.with_name(here.name + ".begun"))
while not here.with_name(here.name + ".go").exists(): time.sleep(0.01)
print("two", flush=True)
print('fairlead:result {"done": true}', flush=True)
"""
# Leaves children behind, in its session and out of it.
LINGERS = """
import os, time
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        time.sleep(120)
time.sleep(120)
"""
FAILS_ONCE = 'import os, sys; sys.exit("not now" if os.environ["FAIRLEAD_ATTEMPT"] == "1" else 0)'
SCRIPTS = {"talks": TALKS, "lingers": LINGERS, "fails-once": FAILS_ONCE}


class Yard(Fleet):
    """A server, a host of one tenant, and the host's agents."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder)
        self.port = free_port()
        self.mark = uuid4().hex
        self.config = folder / "fairlead.toml"
        self.host: Host
        self.token = ""

    def set_up(self) -> None:
        """A host, its commands, and somebody who reads what they say."""
        self.config.write_text("\n".join(self._allowed(key, text) for key, text in SCRIPTS.items()))
        self.fl.inner.allow_commands(self.config)

        async def publish(tx: Tx) -> None:
            principal = self.fl.inner.principal
            for command in self.fl.inner.commands.values():
                says = definition_of(command.spec)
                await definitions.patch(tx, principal, says.pop("key"), says)
            tenant_id = (await tenants.ids(tx, [given.TENANT]))[given.TENANT]
            self.host = await hosts.add(tx, principal, tenant_id=tenant_id, name="box", max_running=4)
            made = await access.create_token(
                tx, principal, name="admin", role=Role.TENANT_ADMIN, tenant_id=tenant_id
            )
            self.token = made.secret

        self.fl._wait(self.fl.inner.database.transact(publish))

    def _allowed(self, key: str, text: str) -> str:
        path = self.folder / f"{key}.py"
        path.write_text(text)
        argv = json.dumps([sys.executable, "-I", "-S", str(path)])
        return (
            f"[commands.{key}]\nargv = {argv}\ntimeout = 120\ngrace_seconds = 0.5\n"
            "backoff = { base_seconds = 0.1, jitter = 0 }\n"
            f'set_env = {{ {MARK} = "{self.mark}", FOLDER = "{self.folder}" }}\n'
        )

    @contextmanager
    def server(self, *, lease: float = LEASE) -> Iterator[WorkerUnderTest]:
        argv = [FAIRLEAD, "serve", "--port", str(self.port)]
        env = {**QUICK, "FAIRLEAD_LEASE_SECONDS": str(lease), "FAIRLEAD_DATABASE_URL": self.url}
        with self._running(argv, env, "serving") as server:
            yield server

    @contextmanager
    def agent(self, name: str = "first", *, wait: bool = True) -> Iterator[WorkerUnderTest]:
        """An agent with a folder of its own, enrolled if it was not before."""
        state = self.folder / name
        app = "tests.acceptance.jobs_under_test:fl"
        argv = [FAIRLEAD, "--verbose", "agent", app, "--state-dir", str(state)]
        if not state.exists():
            code = self.ask("POST", f"/hosts/{self.host.id}/enrolment")["code"]
            argv += ["--server", f"http://127.0.0.1:{self.port}", "--enrol", code]
        env = {"FAIRLEAD_CONFIG": str(self.config), "FAIRLEAD_DRAIN_SECONDS": "0.5"}
        with self._running(argv, env, "the agent of box serves" if wait else "") as agent:
            yield agent

    @contextmanager
    def _running(self, argv: list[str], env: dict[str, str], says: str) -> Iterator[WorkerUnderTest]:
        with started(argv, env={"PYTHONUNBUFFERED": "1", **env}, cwd=ROOT) as process:
            running = WorkerUnderTest(process)
            try:
                running.says(says)
                yield running
            except AssertionError as error:
                error.add_note(f"{argv[1:3]} said: {running.said[-4000:]}")
                raise
            finally:
                running.end()

    def ask(self, method: str, path: str, **body: Any) -> Any:
        answer = httpx2.request(
            method,
            f"http://127.0.0.1:{self.port}/api/v1{path}",
            headers={"Authorization": f"Bearer {self.token}"},
            json=body or None,
        )
        assert answer.is_success, answer.text
        return answer.json()

    def here(self, key: str) -> UUID:
        """A job for the host."""
        return self.fl.enqueue(key, tenant=given.TENANT, host_id=self.host.id).id

    def logs(self, job_id: UUID) -> str:
        return "".join(one["text"] for one in self.ask("GET", f"/jobs/{job_id}/logs")["items"])

    def spooled(self, name: str = "first") -> list[Path]:
        return list((self.folder / name / "spool").iterdir())

    def alive(self) -> set[int]:
        return marked(self.mark)


@pytest.fixture
def yard(database_url: str, tmp_path: Path) -> Iterator[Yard]:
    with Yard(database_url, tmp_path) as opened:
        opened.set_up()
        yield opened
        opened.is_consistent()
    assert not opened.alive()


def test_a_host_runs_its_jobs_from_the_first_word_to_the_last(yard: Yard) -> None:
    with yard.server(lease=LONG), yard.agent() as agent:
        job = yard.here("talks")
        yard.began(job)
        until(lambda: yard.logs(job) == "one\n", "what it says while it runs")
        until(lambda: (yard.fl.read(job).progress or {}).get("percent") == 50, "how far it is")
        canceled = yard.here("lingers")
        until(lambda: len(yard.alive()) == 4, "the command and its children")
        asked_at = time.monotonic()
        yard.fl.cancel(canceled)
        assert yard.reaches(canceled, "canceled") == ("canceled", ["canceled"], 0)
        assert time.monotonic() - asked_at < LONG / 6  # told at once, and not by the next heartbeat
        assert len(yard.alive()) == 1

        yard.let_go(job)
        assert yard.output(job) == {"done": True}
        assert yard.logs(job) == "one\ntwo\n"
        assert yard.output(yard.here("on_the_loop"))["pid"] == agent.pid
        failed = yard.here("fails-once")
        assert yard.reaches(failed, "succeeded") == ("succeeded", ["failed", "succeeded"], 1)
        agent.signal(signal.SIGTERM)
        assert agent.exit_code(seconds=10) == 0

        private = yard.folder / "first" / "agent.json"
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
        assert yard.spooled() == []
        with yard.agent() as again:  # without a code
            released = yard.here("talks")
            yard.began(released)
            again.signal(signal.SIGTERM)
            assert again.exit_code(seconds=10) == 0
    assert yard.stands(released) == ("queued", ["released"], 0)


def test_a_killed_agent_loses_its_job_to_the_next_within_the_lease_and_its_late_result_is_refused(
    yard: Yard,
) -> None:
    with yard.server() as server, yard.agent() as agent:
        job = yard.here("talks")
        yard.began(job)
        server.kill()
        yard.let_go(job)
        until(yard.spooled, "the result to be on the disk")
        agent.kill()
    killed_at = time.monotonic()
    with yard.server(), yard.agent("second"):
        ready_at = time.monotonic()
        yard.began(job, 2)
        assert time.monotonic() - max(killed_at + LEASE, ready_at) < MARGIN
        with yard.agent("first") as late:
            late.says("result_refused")
            assert yard.spooled() == []
            assert yard.stands(job) == ("running", ["lost", "running"], 0)
            yard.let_go(job, 2)
            assert yard.output(job) == {"done": True}
    assert yard.stands(job) == ("succeeded", ["lost", "succeeded"], 0)


def test_what_ends_while_the_server_is_away_is_told_when_it_is_back(yard: Yard) -> None:
    with yard.server(lease=LONG) as server, yard.agent() as agent:
        job, later = yard.here("talks"), yard.here("talks")
        yard.began(job)
        yard.began(later)
        server.kill()
        agent.says("server_unreachable")
        yard.let_go(job)
        until(yard.spooled, "the result to be on the disk")
        with yard.server(lease=LONG):
            assert yard.output(job) == {"done": True}
            assert yard.logs(job) == "one\ntwo\n"
            yard.let_go(later)
            assert yard.output(later) == {"done": True}
            until(lambda: not yard.spooled(), "nothing to be left to tell")
    assert yard.stands(job) == ("succeeded", ["succeeded"], 0)


def test_an_agent_that_is_replaced_finishes_what_it_runs_and_says_why_it_ends(yard: Yard) -> None:
    with yard.server(lease=LONG), yard.agent() as older:
        job = yard.here("talks")
        yard.began(job)
        with yard.agent("second") as newer:
            older.says("agent_superseded")
            yard.let_go(job)
            assert yard.output(job) == {"done": True}
            assert older.exit_code(seconds=10) == 1
            older.says("Another agent was started for this host")
            assert yard.stands(job) == ("succeeded", ["succeeded"], 0)

            last = yard.here("talks")
            yard.began(last)
            yard.ask("PATCH", f"/hosts/{yard.host.id}", draining=True, note="a new disk")
            newer.says("host_state")
            left = yard.here("talks")
            yard.let_go(last)
            assert newer.exit_code(seconds=10) == 0
    assert yard.stands(last) == ("succeeded", ["succeeded"], 0)
    assert yard.stands(left) == ("queued", [], 0)


def test_an_agent_whose_token_is_revoked_is_cut_off_and_its_jobs_with_it(yard: Yard) -> None:
    with yard.server(lease=8), yard.agent() as agent:
        job = yard.here("talks")
        yard.began(job)
        yard.ask("POST", f"/hosts/{yard.host.id}/revoke")
        until(lambda: not yard.alive(), "its command to be stopped", seconds=8)
        assert agent.exit_code(seconds=10) == 1
        agent.says("--enrol")
        with yard.agent("second"):
            yard.began(job, 2)
            yard.let_go(job, 2)
            assert yard.output(job) == {"done": True}
    # its token may have been good for long enough to give the job back
    assert yard.stands(job)[1] in (["lost", "succeeded"], ["released", "succeeded"])
