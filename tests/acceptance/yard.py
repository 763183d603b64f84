"""A server, a host and its agents: what the acceptance tests of the agent play with."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2

from fairlead.actions import access, definitions, hosts
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.model.command.spec import build_command_definition
from fairlead.model.host import Host
from fairlead.store import tenants
from tests import given
from tests.acceptance.fleet import LONG, QUICK, Fleet, WorkerUnderTest, running
from tests.handlers.commands import MARK, marked
from tests.processes import FAIRLEAD, free_port
from tests.waiting import SECONDS

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
        time.sleep(3600)
time.sleep(3600)
"""
FAILS_ONCE = 'import os, sys; sys.exit("not now" if os.environ["FAIRLEAD_ATTEMPT"] == "1" else 0)'
SCRIPTS = {"talks": TALKS, "lingers": LINGERS, "fails-once": FAILS_ONCE}


class Yard(Fleet):
    """A server, a host of one tenant, and the host's agents."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder)
        self.port = free_port()
        # where agents find the server
        self.at = f"http://127.0.0.1:{self.port}"
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
                says = build_command_definition(command.spec)
                await definitions.patch(tx, principal, says.pop("key"), says)
            tenant_id = (await tenants.get_ids(tx, [given.TENANT]))[given.TENANT]
            self.host = await hosts.add(tx, principal, tenant_id=tenant_id, name="box", max_running=4)
            made = await access.create_token(
                tx, principal, name="admin", role=Role.TENANT_ADMIN, tenant_id=tenant_id
            )
            self.token = made.secret

        self.fl.wait(self.fl.inner.database.transact(publish))

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
    def server(self, *, lease: float = LONG) -> Iterator[WorkerUnderTest]:
        argv = [FAIRLEAD, "serve", "--port", str(self.port)]
        env = {**QUICK, "FAIRLEAD_LEASE_SECONDS": str(lease), "FAIRLEAD_DATABASE_URL": self.url}
        with running(argv, env, says="serving") as server:
            yield server

    @contextmanager
    def agent(
        self, name: str = "first", *, wait: bool = True, flags: Sequence[str] = ()
    ) -> Iterator[WorkerUnderTest]:
        """An agent with a folder of its own, enrolled if it was not before."""
        state = self.folder / name
        app = "tests.acceptance.jobs_under_test:fl"
        argv = [FAIRLEAD, "--verbose", "agent", app, "--state-dir", str(state), *flags]
        if not state.exists():
            code = self.ask("POST", f"/hosts/{self.host.id}/enrolment")["code"]
            argv += ["--server", self.at, "--enrol", code]
        env = {"FAIRLEAD_CONFIG": str(self.config), "FAIRLEAD_DRAIN_SECONDS": "0.5"}
        with running(argv, env, says="the agent of box serves" if wait else "") as agent:
            yield agent

    def ask(self, method: str, path: str, **body: Any) -> Any:
        answer = httpx2.request(
            method,
            f"http://127.0.0.1:{self.port}/api/v1{path}",
            headers={"Authorization": f"Bearer {self.token}"},
            json=body or None,
            timeout=SECONDS,
        )
        assert answer.is_success, answer.text
        return answer.json()

    def here(self, key: str) -> UUID:
        """A job for the host."""
        return self.fl.enqueue(key, tenant=given.TENANT, host_id=self.host.id).id

    def end_lease(self, job_id: UUID) -> None:
        """As if its owner had not renewed it for so long."""
        self.rows("update fairlead.leases set expires_at = clock_timestamp() where job_id = %s", job_id)

    def logs(self, job_id: UUID) -> str:
        return "".join(one["text"] for one in self.ask("GET", f"/jobs/{job_id}/logs")["items"])

    def spooled(self, name: str = "first") -> list[Path]:
        return list((self.folder / name / "spool").iterdir())

    def has_spooled_result(self) -> bool:
        # the file is there, empty or with output only, before the result is
        return any(b'["result",' in path.read_bytes() for path in self.spooled())

    def alive(self) -> set[int]:
        return marked(self.mark)
