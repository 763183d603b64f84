"""A whole run of `fairlead chaos`: everything under faults, then a check of every job. `make chaos` does it for 20 minutes."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from fairlead.chaos.site.leftovers import PROC
from tests.preloaded import Process
from tests.processes import FAIRLEAD, environment, until
from tests.thorough import THOROUGH
from tests.waiting import SECONDS

# The run goes on until so many faults have begun; a line of progress that counts them is printed every five seconds.
FAULTS = int(os.environ.get("CHAOS_FAULTS", "3" if THOROUGH else "1"))
SEED = 24
# Few processes and jobs, since on a busy machine each start takes seconds. Agents and workers over HTTP under faults:
# tests/acceptance/test_agents_faults.py, and `make chaos`.
OPTIONS = (
    "--minutes=60",
    f"--seed={SEED}",
    "--rate=10",
    "--workers=2",
    "--http-workers=0",
    "--agents=0",
    "--servers=1",
    "--schedulers=1",
    "--clients=1",
    "--hostile-clients=0",
    "--typescript-workers=0",
    "--lease-seconds=10",
    "--drain-seconds=200",
    "--json",
)


@pytest.mark.deeper
@pytest.mark.timeout(10 * SECONDS)
def test_some_seconds_of_faults_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    folder, progress, result = tmp_path / "run", tmp_path / "progress", tmp_path / "result"
    argv = [FAIRLEAD, "chaos", *OPTIONS, f"--keep={folder}", f"--report={tmp_path / 'report.md'}"]
    with (
        progress.open("w") as stderr,
        result.open("w") as stdout,
        Process(argv, env=environment(), stdout=stdout, stderr=stderr) as process,
    ):
        try:
            until(
                lambda: _count_faults(progress.read_text()) >= FAULTS or process.poll() is not None,
                "the faults",
                seconds=5 * SECONDS,
            )
            process.send_signal(signal.SIGINT)
            code = process.wait(5 * SECONDS)
        finally:
            process.terminate()
    said = progress.read_text()
    assert result.read_text(), said
    found = json.loads(result.read_text())

    assert found["findings"] == [], f"{found['findings']}\n{said}"
    assert code == 0
    assert found["seed"] == SEED
    assert found["counts"]["jobs"] > 0
    assert sum(found["faults"].values()) >= FAULTS
    assert "### Findings" in (tmp_path / "report.md").read_text()
    assert [one for one in PROC.glob("[0-9]*/cmdline") if str(folder) in _read(one)] == []


def _count_faults(progress: str) -> int:
    return max((int(number) for number in re.findall(r"(\d+) faults\n", progress)), default=0)


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""  # it has ended
