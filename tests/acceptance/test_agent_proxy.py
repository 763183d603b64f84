"""An agent and its server with a real nginx between them, set up as an ordinary one."""

from pathlib import Path

import pytest

from tests.acceptance.fleet import NO_HEARTBEAT
from tests.acceptance.yard import Yard
from tests.nginx import find_nginx, nginx
from tests.processes import until

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(find_nginx() is None, reason="needs nginx: make tools TOOLS=thorough"),
]


def test_an_agent_works_through_a_proxy_below_a_path(yard: Yard, tmp_path: Path) -> None:
    with yard.server(lease=NO_HEARTBEAT), nginx(tmp_path / "nginx", yard.at) as proxy:
        yard.at = proxy.url
        with yard.agent():
            job = yard.here("talks")
            yard.began(job)
            until(lambda: yard.logs(job) == "one\n", "what it says while it runs")
            canceled = yard.here("lingers")
            until(lambda: len(yard.alive()) == 4, "the command and its children")
            yard.fl.cancel(canceled)  # told at once, and not by the next heartbeat
            assert yard.reaches(canceled, "canceled") == ("canceled", ["canceled"], 0)

            proxy.reload()
            yard.let_go(job)
            assert yard.output(job) == {"done": True}
            assert yard.logs(job) == "one\ntwo\n"
            assert yard.output(yard.here("on_the_loop"))
    assert yard.stands(job) == ("succeeded", ["succeeded"], 0)
