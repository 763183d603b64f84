"""The documentation as a site, for each version a folder. `make docs` builds it in site/, or in the folder that it is given."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fairlead.version import __version__

ROOT = Path(__file__).parents[1]
SETTINGS_SCHEMA = ROOT / "src" / "fairlead" / "fairlead.schema.json"
# Attributes that a browser follows by itself when it shows a page.
FETCHED = {"script": "src", "img": "src", "source": "srcset", "iframe": "src", "link": "href"}
NOT_FETCHED = {"canonical", "next", "prev", "alternate"}  # kinds of <link>


class Page(HTMLParser):
    """What a page links to, what it fetches, and the anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if name := given.get("id"):
            self.anchors.add(name)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in FETCHED and FETCHED[tag] in given and given.get("rel") not in NOT_FETCHED:
            self.fetched.append(given[FETCHED[tag]])


def build(site: Path, version: str = __version__) -> Path:
    """The folder of this version in the site, built anew; SystemExit if a warning or a broken link was found."""
    with tempfile.TemporaryDirectory() as scratch:
        made = render(Path(scratch))
        if faults := list(find_faults(made)):
            raise SystemExit("\n".join(faults))
        folder = site / version
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
    list_versions(site)
    return folder


def render(scratch: Path) -> Path:
    """The pages as Zensical makes them, in a scratch copy: it leaves a cache beside its configuration."""
    docs = scratch / "docs"
    shutil.copytree(ROOT / "docs", docs)
    shutil.copy(ROOT / "mkdocs.yml", scratch)
    take_examples(docs)
    shutil.copy(SETTINGS_SCHEMA, docs)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=scratch,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"zensical build --strict failed:\n{done.stdout}{done.stderr}")
    for page in docs.rglob("*.md"):  # llms.txt leads to these
        shutil.copy(page, scratch / "site" / page.relative_to(docs))
    return scratch / "site"


def take_examples(docs: Path) -> None:
    """Copy the examples that pages link to into the site, which has nothing else of the repository."""
    for page in docs.rglob("*.md"):
        text = page.read_text("utf-8")
        for name in re.findall(r"\]\(\.\./\.\./(examples/[\w/.]+)\)", text):
            (docs / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, docs / name)
        page.write_text(text.replace("](../../examples/", "](../examples/"), "utf-8")


def find_faults(made: Path) -> Iterator[str]:
    """Links that lead nowhere, and what a browser would fetch from another host."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(made.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(made)
        yield from (f"{name} fetches {link}" for link in page.fetched if urlsplit(link).netloc)
        if path.name == "404.html":  # its links begin at the root, wherever it is shown
            continue
        for link in dict.fromkeys([*page.links, *page.fetched]):
            if not leads_somewhere(path, link, pages):
                yield f"{name} links to {link}, which does not exist"


def leads_somewhere(path: Path, link: str, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True  # other hosts are not asked
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    return not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].anchors


def list_versions(site: Path) -> None:
    """versions.json, which the pages of every version read for their menu, and an index that leads to the newest."""
    found = sorted((path.parent.name for path in site.glob("*/index.html")), key=order, reverse=True)
    listed = [
        {"version": one, "title": one, "aliases": ["latest"] if one == found[0] else []} for one in found
    ]
    (site / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", "utf-8")
    (site / "index.html").write_text(
        f'<!doctype html>\n<meta charset="utf-8">\n<title>Fairlead</title>\n'
        f'<meta http-equiv="refresh" content="0; url={found[0]}/">\n<a href="{found[0]}/">Fairlead {found[0]}</a>\n',
        "utf-8",
    )


def order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def read_navigation() -> dict[str, list[tuple[str, str]]]:
    """The pages of mkdocs.yml: title and path, by the heading over them ("" for those without one)."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    heading = ""
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    for indent, title, page in re.findall(r"^( +)- (.+?):(?: ([\w/-]+\.md))?$", nav, re.MULTILINE):
        if not page:
            heading = title
        else:
            found[heading if len(indent) > 2 else ""].append((title, page))
    return dict(found)


def list_for_models() -> str:
    """llms.txt: every page of the navigation with its first sentence, for programs that read documentation."""
    lines = ["# Fairlead", "", f"> {describe('index.md')}", ""]
    for heading, pages in read_navigation().items():
        lines += [f"## {heading or 'Start'}", ""]
        lines += [f"- [{title}]({page}): {describe(page)}" for title, page in pages]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def describe(page: str) -> str:
    """The first sentences under the title of a page, as plain text: one, or more if they are short."""
    text = re.sub(
        r"^```.*?^```", "", (ROOT / "docs" / page).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    paragraph = next(one for one in re.split(r"\n\s*\n", text)[1:] if re.match(r"[A-Za-z`\[*]", one.strip()))
    plain = re.sub(r"\[([^]]+)]\([^)]+\)", r"\1", " ".join(paragraph.split())).replace("**", "")
    taken = ""
    for sentence in re.split(r"(?<=[.?:])\s", plain):
        taken = f"{taken} {sentence}".strip()
        if len(taken) >= 60:
            break
    return taken.rstrip(":.") + "."


if __name__ == "__main__":
    (ROOT / "docs" / "llms.txt").write_text(list_for_models(), "utf-8")
    there = build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site"))
    sys.stdout.write(f"{there}: {len(list(there.rglob('*.html')))} pages, no warning, no broken link\n")
