"""Real agents of a real server: jobs of one host, whatever dies between the two."""

import json
import signal
import stat

import pytest

from tests.acceptance.fleet import NO_HEARTBEAT
from tests.acceptance.yard import Yard
from tests.processes import until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough


def test_a_host_runs_its_jobs_from_the_first_word_to_the_last(yard: Yard) -> None:
    with yard.server(lease=NO_HEARTBEAT), yard.agent() as agent:
        job = yard.here("talks")
        yard.began(job)
        until(lambda: yard.logs(job) == "one\n", "what it says while it runs")
        until(lambda: (yard.fl.read(job).progress or {}).get("percent") == 50, "how far it is")
        canceled = yard.here("lingers")
        until(lambda: len(yard.alive()) == 4, "the command and its children")
        yard.fl.cancel(canceled)  # told at once, and not by the next heartbeat
        assert yard.reaches(canceled, "canceled") == ("canceled", ["canceled"], 0)
        assert len(yard.alive()) == 1

        yard.let_go(job)
        assert yard.output(job) == {"done": True}
        assert yard.logs(job) == "one\ntwo\n"
        assert yard.output(yard.here("on_the_loop"))["pid"] == agent.pid
        failed = yard.here("fails-once")
        assert yard.reaches(failed, "succeeded") == ("succeeded", ["failed", "succeeded"], 1)
        agent.signal(signal.SIGTERM)
        assert agent.exit_code(seconds=SECONDS) == 0

        private = yard.folder / "first" / "agent.json"
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
        assert yard.spooled() == []
        with yard.agent() as again:  # without a code
            released = yard.here("talks")
            yard.began(released)
            again.signal(signal.SIGTERM)
            assert again.exit_code(seconds=SECONDS) == 0
    assert yard.stands(released) == ("queued", ["released"], 0)


def test_a_killed_agent_loses_its_job_to_the_next_when_its_lease_ends_and_its_late_result_is_refused(
    yard: Yard,
) -> None:
    # a server that was away for half of a lease would give owners another one to report
    with yard.server(lease=NO_HEARTBEAT) as server, yard.agent() as agent:
        job = yard.here("talks")
        yard.began(job)
        server.kill()
        yard.let_go(job)
        until(yard.has_spooled_result, "the result to be on the disk")
        agent.kill()
    with yard.server(lease=NO_HEARTBEAT), yard.agent("second"):
        assert yard.stands(job) == ("running", ["running"], 0)
        yard.end_lease(job)
        yard.began(job, 2)
        with yard.agent("first") as late:
            late.says("result_refused")
            assert yard.spooled() == []
            assert yard.stands(job) == ("running", ["lost", "running"], 0)
            yard.let_go(job, 2)
            assert yard.output(job) == {"done": True}
    assert yard.stands(job) == ("succeeded", ["lost", "succeeded"], 0)


def test_an_agent_that_is_replaced_finishes_what_it_runs_and_says_why_it_ends(yard: Yard) -> None:
    with yard.server(), yard.agent() as older:
        job = yard.here("talks")
        yard.began(job)
        with yard.agent("second") as newer:
            older.says("agent_superseded")
            yard.let_go(job)
            assert yard.output(job) == {"done": True}
            assert older.exit_code(seconds=SECONDS) == 1
            older.says("Another agent was started for this host")
            assert yard.stands(job) == ("succeeded", ["succeeded"], 0)

            last = yard.here("talks")
            yard.began(last)
            yard.ask("PATCH", f"/hosts/{yard.host.id}", draining=True, note="a new disk")
            newer.says("host_state")
            left = yard.here("talks")
            yard.let_go(last)
            assert newer.exit_code(seconds=SECONDS) == 0
    assert yard.stands(last) == ("succeeded", ["succeeded"], 0)
    assert yard.stands(left) == ("queued", [], 0)


def test_an_agent_whose_token_is_revoked_is_cut_off_and_its_jobs_with_it(yard: Yard) -> None:
    with yard.server(lease=NO_HEARTBEAT), yard.agent() as agent:
        job = yard.here("talks")
        yard.began(job)
        yard.ask("POST", f"/hosts/{yard.host.id}/revoke")
        until(lambda: not yard.alive(), "its command to be stopped")
        assert agent.exit_code(seconds=SECONDS) == 1
        agent.says("--enrol")
        yard.end_lease(job)
        with yard.agent("second"):
            yard.began(job, 2)
            yard.let_go(job, 2)
            assert yard.output(job) == {"done": True}
    # its token may have been good for long enough to give the job back
    assert yard.stands(job)[1] in (["lost", "succeeded"], ["released", "succeeded"])


def test_an_old_token_is_renewed_at_a_start_and_is_good_until_the_new_one_is_kept(yard: Yard) -> None:
    with yard.server():
        with yard.agent() as agent:
            agent.signal(signal.SIGTERM)
            assert agent.exit_code(seconds=SECONDS) == 0
        kept = yard.folder / "first" / "agent.json"
        first = json.loads(kept.read_text())
        kept.write_text(
            json.dumps({name: first[name] for name in first if name != "since"})
        )  # as it once was
        obstacle = kept.with_name("agent.json.new")
        obstacle.mkdir()
        with yard.agent(wait=False) as agent:
            assert agent.exit_code(seconds=SECONDS) != 0
        assert json.loads(kept.read_text())["token"] == first["token"]

        obstacle.rmdir()
        with yard.agent():
            second = json.loads(kept.read_text())
            assert second["token"] != first["token"]
            assert second["since"] > first["since"]
            assert stat.S_IMODE(kept.stat().st_mode) == 0o600
            assert yard.output(yard.here("on_the_loop"))
        with yard.agent():
            assert json.loads(kept.read_text()) == second
        with yard.agent(flags=["--rotate"]):
            assert json.loads(kept.read_text())["token"] != second["token"]
