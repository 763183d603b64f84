"""The pages about deployment: their commands exist, their files exist, and their blocks are what the files are."""

import re
import shlex
import subprocess

import yaml

from tests.deploy.files import DEPLOY, ROOT, read_list, require_command
from tests.deploy.test_chart import VALUES, check_values, merge, render
from tests.tables import each_case

HOW_TO = ROOT / "docs" / "how-to"
PAGES = ["deploy.md", "docker.md", "kubernetes.md", "monitoring.md", "systemd.md"]


def blocks(page: str, language: str) -> list[str]:
    text = (HOW_TO / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@each_case("page", PAGES)
def test_the_shell_can_read_it_and_commands_of_fairlead_exist(page: str) -> None:
    for block in blocks(page, "sh"):
        subprocess.run(["bash", "-n"], input=block, text=True, check=True)
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            at = [
                place for place, word in enumerate(words) if word == "fairlead" and _is_program(words, place)
            ]
            for place in at:
                require_command(words[place + 1 :])


def _is_program(words: list[str], place: int) -> bool:
    """Whether this word is the program that a line runs, and not a name."""
    return place == 0 or words[place - 1] == "--" or words[place - 3 : place - 1] == ["compose", "exec"]


@each_case("page", PAGES)
def test_files_that_it_names_exist(page: str) -> None:
    text = (HOW_TO / page).read_text("utf-8")
    named = set(re.findall(r"\bdeploy/[\w/.-]*\w", re.sub(r"deploy/fairlead-serve", "", text)))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_values_of_the_page_are_taken() -> None:
    values = [yaml.safe_load(block) for block in blocks("kubernetes.md", "yaml")]
    assert len(values) == 2
    for one in values:
        assert check_values(merge(VALUES, one)) == []
        assert render(one)


def test_the_scrape_jobs_of_the_page_are_those_of_the_file() -> None:
    [block] = blocks("monitoring.md", "yaml")
    document = yaml.safe_load(block)
    document.pop("rule_files")
    assert document == yaml.safe_load((DEPLOY / "monitoring" / "scrape.yml").read_text("utf-8"))


def test_the_image_of_the_page_starts_a_worker() -> None:
    [block] = blocks("docker.md", "dockerfile")
    [command] = re.findall(r"^CMD (.+)$", block, re.MULTILINE)
    require_command(read_list(command))
    assert re.findall(r"^USER (\S+)$", block, re.MULTILINE)[-1] == "10001"


def test_the_units_that_the_page_enables_exist() -> None:
    for block in blocks("systemd.md", "sh"):
        for line in block.splitlines():
            if line.startswith("systemctl ") and "daemon-reload" not in line:
                units = [word for word in line.split() if word.startswith("fairlead-")]
                assert [name for name in units if not (DEPLOY / "systemd" / f"{name}.service").exists()] == []


def test_the_compose_files_own_instructions_are_those_of_the_page() -> None:
    said = (DEPLOY / "compose.yaml").read_text("utf-8")
    for line in blocks("docker.md", "sh")[0].splitlines():
        assert f"#   {line}" in said
