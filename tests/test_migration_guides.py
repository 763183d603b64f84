"""The guides for those who come from other queues: what they show of Fairlead runs, and the pictures of the docs are drawn for both schemes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import pytest

from fairlead.cli.root import main
from tests import typescript
from tests.processes import environment, run_to_end
from tests.tables import each_case

ROOT = Path(__file__).parents[1]
HOW_TO = ROOT / "docs" / "how-to"
RUN = """
import jobs

with jobs.fl as fl:
    run = fl.start({workflow!r}, tenant="global")
    while fl.tick().ran:
        pass
    print(run.result(timeout=60))
"""


def ours(page: str, language: str = "python") -> list[str]:
    """The blocks of a page that begin by saying that they are Fairlead's."""
    text = (HOW_TO / page).read_text("utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [block for block in blocks if re.match(r"(#|//) Fairlead", block)]


@pytest.mark.parametrize(
    ("page", "workflow", "says"),
    [
        ("from-celery.md", "sums", ["5\n", "{'total': 10}"]),
        ("from-rq.md", "count-and-charge", ["3\n", "{'charge': 'charged 2'}"]),
    ],
)
def test_the_code_of_a_guide_runs(
    database_url: str, tmp_path: Path, page: str, workflow: str, says: list[str]
) -> None:
    module, calls, *more = ours(page)
    (tmp_path / "jobs.py").write_text(module, "utf-8")
    # functions and workflows are defined before Fairlead is opened, as in a program of modules
    (tmp_path / "program.py").write_text("\n".join([*more, calls, RUN.format(workflow=workflow)]), "utf-8")

    env = environment(FAIRLEAD_DATABASE_URL=database_url)
    done = run_to_end([sys.executable, "program.py"], env=env, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert [one for one in says if one not in done.stdout] == [], done.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_the_javascript_of_the_guide_is_valid_and_uses_what_the_client_has(tmp_path: Path) -> None:
    blocks = ours("from-bullmq.md", "js")
    sources = "\n".join(path.read_text("utf-8") for path in (typescript.PACKAGE / "src").glob("*.ts"))

    assert len(blocks) == 2
    for block in blocks:
        path = tmp_path / "block.mjs"
        path.write_text(block, "utf-8")
        subprocess.run(["node", "--check", str(path)], check=True, capture_output=True)
        for call in re.findall(r"\b(?:fl|job|worker)\.(\w+)\(", block):
            assert re.search(rf"^\s+(?:async )?{call}(?:<[^(]*>)?\(", sources, re.MULTILINE), call
        for option in re.findall(r"^  (\w+): ", block, re.MULTILINE):
            assert re.search(rf"\b{option}\??:", sources), option


@each_case("page", ["from-celery.md", "from-rq.md", "from-bullmq.md"])
def test_a_guide_names_only_commands_that_exist(page: str) -> None:
    text = (HOW_TO / page).read_text("utf-8")

    for words in re.findall(
        r"(?<![\w/-])fairlead ((?:[a-z]+ ?)+)", " ".join(re.findall(r"`([^`\n]+)`", text))
    ):
        command: click.Command = main
        for word in words.split():
            if not isinstance(command, click.Group):
                break
            found = command.get_command(click.Context(command), word)
            assert found is not None, words
            command = found


@each_case("scheme", ["light", "dark"])
def test_the_picture_of_the_architecture_is_in_both_schemes(scheme: str) -> None:
    picture = (ROOT / "docs" / "images" / f"architecture-{scheme}.svg").read_text("utf-8")
    texts = [one.text for one in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314 -- our own file

    assert {"PostgreSQL", "fairlead worker", "fairlead serve", "fairlead scheduler"} <= set(texts)
    assert set(re.findall(r"https?://[^\"\s]+", picture)) == {"http://www.w3.org/2000/svg"}
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
    assert f"architecture-{scheme}.svg#only-{scheme}" in page


def test_the_comparison_is_dated_and_fair() -> None:
    text = (ROOT / "docs" / "explanation" / "comparison.md").read_text("utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE))

    assert re.search(r"as of \w+ 20\d\d", text)
    for other in ("Oban", "River", "Hatchet", "Temporal", "Celery", "BullMQ"):
        assert "**Better there.**" in sections[other]
