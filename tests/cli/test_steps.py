"""`fairlead jobs steps` and `fairlead jobs signal`, and the same in the synchronous library."""

from collections.abc import Iterator

import pytest

from fairlead import Context, JobStatus, Settings, sync
from tests.cli.test_commands import Shell
from tests.given import TENANT


@pytest.fixture
def fl(settings: Settings) -> Iterator[sync.Fairlead]:
    fl = sync.Fairlead(settings=settings, actor="tester")

    @fl.job(durable=True)
    def talk(ctx: Context) -> int:
        parts = ctx.gather(lambda: ctx.step("left", lambda: 1), lambda: ctx.step("right", lambda: 2))
        ctx.sleep(0)
        signal = ctx.wait_for_signal("answer")
        return int(sum(parts) + signal.data["n"])

    with fl:
        yield fl


def test_steps_are_listed_and_a_signal_is_sent(shell: Shell, fl: sync.Fairlead) -> None:
    job = fl.enqueue("talk", tenant=TENANT)
    empty = shell("jobs", "steps", str(job.id)).output
    assert empty.startswith("No steps. Only functions with @fl.job(durable=True) record steps.")
    fl.tick()

    shown = shell.json("jobs", "steps", str(job.id))
    assert [(one["place"], one["name"], one["status"]) for one in shown["items"]] == [
        ("1", "sleep", "succeeded"),
        ("2", "answer", "waiting"),
        ("/0.0.0:1", "left", "succeeded"),
        ("/0.0.1:1", "right", "succeeded"),
    ]
    page = shell.json("jobs", "steps", str(job.id), "--limit", "3")
    assert page["next_cursor"] == "/0.0.0:1"
    [last] = shell.json("jobs", "steps", str(job.id), "--cursor", "/0.0.0:1")["items"]
    assert last["result"] == 2
    assert [one.place for one in fl.steps(job.id, after="2")] == ["/0.0.0:1", "/0.0.1:1"]
    table = shell("jobs", "steps", str(job.id)).output
    assert "answer" in table
    assert "waiting" in table

    assert shell.refused("jobs", "steps", str(job.id), "--cursor", "nonsense") == "invalid_input"
    assert shell.refused("jobs", "signal", str(job.id), "answer", "--data", "{") == "invalid_input"
    assert shell.json("jobs", "signal", str(job.id), "answer", "--data", '{"n": 4}')["id"]
    fl.tick()
    done = fl.read(job.id)
    assert (done.status, done.output) == (JobStatus.SUCCEEDED, 7)
    assert shell.refused("jobs", "signal", str(job.id), "answer") == "job_not_signalable"
