"""The site of the documentation: built strictly, complete, without another host, in light and dark, with a menu of versions."""

import fcntl
import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Page as Tab
from playwright.async_api import async_playwright, expect

from fairlead.version import __version__
from tests import site
from tests.console.visiting import FLAGS, chromium

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[1]
OLDER = "0.0.9"
SCHEMES: dict[Literal["light", "dark"], str] = {"light": "default", "dark": "slate"}
LONG = 60_000  # milliseconds; the machine may be busy


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A site with two versions: this one, and an earlier one that was built before. One for all test processes."""
    folder = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        folder = folder.parent
    folder /= "site"
    with folder.with_name("site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "index.html").exists():
            (folder / OLDER).mkdir(parents=True, exist_ok=True)
            (folder / OLDER / "index.html").write_text("<!doctype html><title>old</title>", "utf-8")
            site.build(folder)
    return folder


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- as the base class has it
        pass


@pytest.fixture
def address(built: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(built)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_every_page_of_the_navigation_is_in_the_site(built: Path) -> None:
    pages = [page for listed in site.read_navigation().values() for _, page in listed]

    assert len(pages) == len(list((ROOT / "docs").rglob("*.md")))
    for page in pages:
        made = built / __version__ / page
        assert made.is_file(), "the page as Markdown, for llms.txt"
        assert (
            made.parent / "index.html" if page == "index.md" else made.with_suffix("") / "index.html"
        ).is_file()


def test_the_newest_version_comes_first_and_earlier_ones_stay(built: Path) -> None:
    listed = json.loads((built / "versions.json").read_text("utf-8"))

    assert [one["version"] for one in listed] == [__version__, OLDER]
    assert [one["aliases"] for one in listed] == [["latest"], []]
    assert f"url={__version__}/" in (built / "index.html").read_text("utf-8")


def test_versions_are_ordered_by_their_numbers() -> None:
    assert sorted(["0.10.0", "0.2.0", "1.0.0", "0.9.1"], key=site.order) == [
        "0.2.0",
        "0.9.1",
        "0.10.0",
        "1.0.0",
    ]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="gone/">x</a>', "index.html links to gone/, which does not exist"),
        ('<a href="#gone">x</a>', "index.html links to #gone, which does not exist"),
        ('<a href="two/#gone">x</a>', "index.html links to two/#gone, which does not exist"),
        ('<img src="gone.png">', "index.html links to gone.png, which does not exist"),
        ('<script src="https://cdn.example/x.js"></script>', "index.html fetches https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', "index.html fetches //fonts.example/x.css"),
    ],
)
def test_a_broken_link_and_another_host_are_found(tmp_path: Path, body: str, fault: str) -> None:
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "index.html").write_text('<a href="../">back</a><h2 id="there">x</h2>', "utf-8")
    fine = '<a href="two/#there">x</a><a href="https://example.org/">a link is not fetched</a>'
    (tmp_path / "index.html").write_text(fine + body, "utf-8")

    assert list(site.find_faults(tmp_path)) == [fault]


def test_llms_txt_lists_every_page_and_is_current() -> None:
    text = (ROOT / "docs" / "llms.txt").read_text("utf-8")

    assert text == site.list_for_models(), "run make docs"
    for page in (ROOT / "docs").rglob("*.md"):
        assert f"]({page.relative_to(ROOT / 'docs')}): " in text


def test_a_page_is_found_by_its_words(built: Path) -> None:
    index = (built / __version__ / "search.json").read_text("utf-8")

    assert "dead_letter" in index
    assert "how-to/cells/" in index


@pytest.mark.skipif(chromium() is None, reason="needs Chromium")
async def test_a_browser_shows_it_in_its_scheme_and_asks_no_other_host(address: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            asked: list[str] = []
            for preferred, scheme in SCHEMES.items():
                tab = await browser.new_page(color_scheme=preferred)
                tab.on("request", lambda request: asked.append(request.url))
                await tab.goto(f"{address}/{__version__}/", timeout=LONG)
                body = tab.locator("body")
                await expect(body).to_have_attribute("data-md-color-scheme", scheme, timeout=LONG)
            await expect(tab.locator(".md-version__list")).to_contain_text(OLDER, timeout=LONG)
            await search(tab, "dead letter")
            assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
        finally:
            await browser.close()


async def search(tab: Tab, words: str) -> None:
    await tab.locator("button.md-search__button").click(timeout=LONG)
    await tab.get_by_role("combobox", name="Search").fill(words, timeout=LONG)
    await expect(tab.get_by_text(re.compile(r"^\d+ results$"))).to_be_visible(timeout=LONG)
