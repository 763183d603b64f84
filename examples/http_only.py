"""A worker with nothing but the standard library and HTTP: what you would write in another language.

Used by http_worker.py.
"""

import json
import time
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

CLAIM = {"definitions": ["example.shout"], "worker_id": "example", "wait": 1}
PAUSE_SECONDS = 0.5


class Worker:
    """Runs jobs of example.shout, one at a time."""

    def __init__(self, url: str, token: str) -> None:
        self._url = f"{url}/worker/jobs"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._claim_id = str(uuid4())  # the same until an answer has jobs: one may be lost on its way

    def work(self) -> bool:
        """Wait a moment for a job and run it; False if there was none. A loop in earnest waits 25 s, again and again."""
        if jobs := self._post("claim", {**CLAIM, "claim_id": self._claim_id})["items"]:
            self._claim_id = str(uuid4())
        for job in jobs:
            print(f"attempt {job['attempt_no']}: {self._run(job)}")
        return bool(jobs)

    def _run(self, job: dict[str, Any]) -> str:
        name = job["payload"]["name"]
        self._tell(job, "logs", chunks=[{"seq": 0, "text": f"shouting at {name}\n"}])
        # at least every third of lease_seconds while the work goes on
        if self._tell(job, "heartbeat")["cancel_requested"]:
            return str(self._tell(job, "release")["status"])
        if not name:
            error = {"type": "Nobody", "message": "there is nobody to shout at"}
            return str(self._tell(job, "fail", error=error, retryable=False)["status"])
        return str(self._tell(job, "complete", output=name.upper())["status"])

    def _tell(self, job: dict[str, Any], what: str, **body: Any) -> Any:
        """Say something of a job that is ours; 409 lease_lost means that it is not any more: stop the work."""
        lease = {"attempt_no": job["attempt_no"], "lease_token": job["lease_token"]}
        return self._post(f"{job['job_id']}/{what}", {**lease, **body})

    def _post(self, path: str, body: dict[str, Any], tries: int = 8) -> Any:
        """Make a request, again if its answer is lost: each of them is safe to repeat."""
        request = Request(f"{self._url}/{path}", json.dumps(body).encode(), self._headers)  # noqa: S310
        try:
            return json.load(urlopen(request, timeout=60))  # noqa: S310
        except (OSError, HTTPException) as error:
            if tries == 1 or (isinstance(error, HTTPError) and error.code < 500):
                raise
        time.sleep(PAUSE_SECONDS)
        return self._post(path, body, tries - 1)
