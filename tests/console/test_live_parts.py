"""A refresh of a page gets only the parts that changed."""

import pytest

from fairlead.server.console.live_parts import hash_part, split_parts
from fairlead.server.problems import CONSOLE
from tests import given
from tests.server.conftest import module_url, shared_world
from tests.server.world import BASE, World

__all__ = ["module_url", "shared_world"]  # fixtures of the server's tests

PAGE = """<main><div class="a" id="one" data-live data-top="x"><div>in</div> <div><div>deep</div></div></div>
<div id="still">no</div><p data-live-state="off"></p><section data-live id="two"><div id="one-more">x</div></section></main>"""


def test_each_live_element_is_a_part() -> None:
    parts = dict(split_parts(PAGE))

    assert list(parts) == ["one", "two"]
    assert parts["one"].startswith('<div class="a"')
    assert parts["one"].endswith("<div>deep</div></div></div>")
    assert parts["two"] == '<section data-live id="two"><div id="one-more">x</div></section>'


def test_a_page_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="without an end"):
        list(split_parts('<div id="a" data-live><p></div'))


def test_a_relative_time_is_no_change() -> None:
    time = '<time datetime="2026-01-01" title="x" data-moment>{}</time>'

    assert hash_part(time.format("3 s ago")) == hash_part(time.format("1 min ago"))
    assert hash_part(time.format("now")) != hash_part(time.replace("2026", "2027").format("now"))


async def test_a_refresh_gets_what_changed_since_the_last_one(shared_world: World) -> None:
    job_id = await given.ended_job(shared_world, "failed")
    url = f"{BASE}{CONSOLE}/definitions"

    async def refresh(known: dict[str, str]) -> dict[str, dict[str, str]]:
        header = ",".join(f"{name}={known.get(name, '')}" for name in ("pause-notice", "table"))
        answer = await shared_world.call("GET", url, who="tenant_admin", headers={"X-Live-Parts": header})
        return {} if answer.status_code == 204 else dict(answer.json())

    first = await refresh({})
    known = {name: part["hash"] for name, part in first.items()}
    assert set(known) == {"pause-notice", "table"}
    assert first["table"]["html"].startswith("<div")
    assert await refresh(known) == {}
    await given.set_definition(shared_world, "greet", description="Another")

    changed = await refresh(known)

    assert list(changed) == ["table"]
    assert "Another" in changed["table"]["html"]
    assert job_id is not None
