"""A real `fairlead dev` for tests: what it prints, and its API."""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

from tests.processes import FAIRLEAD, started, until
from tests.waiting import SECONDS


class Dev:
    """A running `fairlead dev`: what it prints, and its API."""

    def __init__(self, process: "subprocess.Popen[str]", data: Path) -> None:
        self.process = process
        self.lines: list[str] = []
        self._data = data
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError):  # it was closed at the end of the test, with lines left to read
            for line in self.process.stdout:
                self.lines.append(line.rstrip())

    def wait_for(self, text: str, *, times: int = 1) -> None:
        """Wait until it has printed this so many times."""

        def printed() -> bool:
            assert self.process.poll() is None, "\n".join(self.lines)
            return sum(text in line for line in self.lines) >= times

        until(printed, f"{text!r} in the output")

    def api(self, method: str, path: str, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.said['tenant_admin_token']}"}
        url = f"{self.said['url']}/api/v1{path}"
        answer = httpx2.request(method, url, headers=headers, timeout=SECONDS, **options)
        assert answer.is_success, answer.text
        return answer.json()

    @property
    def said(self) -> dict[str, str]:
        """What dev.json says."""
        found: dict[str, str] = json.loads((self._data / "dev.json").read_text())
        return found

    def enqueue(self, name: str) -> str:
        made = self.api("POST", "/jobs", json={"definition_key": "greet", "payload": {"name": name}})
        return str(made["id"])

    def job_when(self, job: str, status: str) -> dict[str, Any]:
        """The job, once it has this status."""

        def found() -> dict[str, Any] | None:
            seen: dict[str, Any] = self.api("GET", f"/jobs/{job}")
            return seen if seen["status"] == status else None

        return until(found, f"the job to be {status}")


@contextmanager
def dev(folder: Path, database_url: str, *argv: str) -> Iterator[Dev]:
    """`fairlead dev` in this folder, told to stop at the end of the block."""
    data = folder / ".fairlead"
    env = {"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_LEASE_SECONDS": "3600"}
    with started([FAIRLEAD, "dev", *argv, "--port", "0"], env=env, cwd=folder) as process:
        running = Dev(process, data)
        running.wait_for("Fairlead is running")
        yield running
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=SECONDS) == 0, "\n".join(running.lines)
