"""`fairlead definitions put --slots --requires` and `fairlead worker --label`."""

from pathlib import Path

from fairlead import Settings, sync
from tests.cli.test_commands import Shell
from tests.cli.test_workers_drain import find_worker
from tests.given import TENANT
from tests.processes import FAIRLEAD, started, until
from tests.tables import each_case
from tests.waiting import SECONDS

APP = """
from fairlead import Fairlead

fl = Fairlead()

@fl.job(requires={"gpu": "true"}, slots=2)
async def train() -> str:
    return "trained"
"""


def test_a_definition_gets_slots_and_labels_and_loses_them(shell: Shell) -> None:
    given = ("--slots", "3", "--requires", "gpu=true", "--requires", "region=eu", "--prefers", "disk=ssd")
    made = shell.json("definitions", "put", "render", *given)
    assert (made["slots"], made["prefers"]) == (3, {"disk": "ssd"})
    assert made["requires"] == {"gpu": "true", "region": "eu"}
    changed = shell.json("definitions", "put", "render", "--requires", "")
    assert (changed["requires"], changed["prefers"], changed["slots"]) == (None, {"disk": "ssd"}, 3)
    assert shell.refused("definitions", "put", "render", "--requires", "gpu") == "invalid_input"
    assert shell.refused("definitions", "put", "render", "--slots", "0") == "definition_invalid"


def test_a_worker_with_a_label_runs_the_jobs_that_require_it(
    shell: Shell, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    env = {"FAIRLEAD_DATABASE_URL": str(settings.database_url)}
    argv = [FAIRLEAD, "worker", "app:fl", "--concurrency", "2", "--label", "gpu=true", "--label", "region=eu"]
    with started(argv, env=env, cwd=tmp_path) as process, sync.Fairlead(settings=settings) as fl:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving train")
        assert fl.enqueue("train", tenant=TENANT).result(timeout=SECONDS) == "trained"
        worker = until(lambda: find_worker(shell), "the worker to be listed")
        assert worker["labels"] == {"gpu": "true", "region": "eu"}
        assert "gpu=true" in shell("workers").output.replace("\n", "")


@each_case("label", ["gpu", "=true", "no spaces=x"])
def test_a_wrong_label_is_refused(shell: Shell, label: str) -> None:
    refused = shell("worker", "no_such_app:fl", "--label", label)
    assert refused.exit_code == 1
    assert "Invalid --label" in refused.output
