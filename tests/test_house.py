"""The house: what CONTRIBUTING.md and the guided tour say about the code is so, and the code keeps to its own rules."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "fairlead"
TOUR = (ROOT / "docs" / "explanation" / "a-guided-tour.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
# The synchronous library has the names of the asynchronous one.
TWINS = {"Fairlead", "EnqueuedJob", "JobFunction", "JobLease", "WorkflowRun"}
# A payload is refused when it is enqueued, or by a model of the function that is to run.
TWINS |= {"PayloadInvalid"}
# Django finds commands and migrations by these names.
TWINS |= {"Command", "Migration"}
# Participles that say nothing alone; -ed is found by its ending.
PARTICIPLES = frozenset(
    {
        *(
            "begun",
            "bound",
            "built",
            "chosen",
            "done",
            "drawn",
            "found",
            "given",
            "gone",
            "held",
            "kept",
            "known",
            "left",
        ),
        *("lent", "lost", "made", "said", "seen", "sent", "shown", "spent", "taken", "told", "written"),
    }
)
# Verbs that end in -ed.
VERBS = {"feed", "succeed", "proceed", "exceed", "embed", "seed", "need", "shed", "speed"}


def _sources() -> Iterator[tuple[Path, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE), path.read_text("utf-8")


def test_the_tour_is_short_and_its_files_and_functions_exist() -> None:
    steps = re.findall(r"^\d+\. `(src/[\w/.]+)`(?:, ((?:`[\w.]+`(?: and )?)+))?", TOUR, re.MULTILINE)

    assert len([path for path, _ in steps if path.endswith(".py")]) <= 15
    assert len([path for path, _ in steps if path.endswith(".sql")]) <= 3
    assert len(steps) == len(re.findall(r"^\d+\. ", TOUR, re.MULTILINE))
    for path, names in steps:
        text = (ROOT / path).read_text("utf-8")
        for name in re.findall(r"[\w.]+", names.replace(" and ", " ")):
            last = name.rpartition(".")[2]
            assert re.search(rf"(?:def|class|-- name:) {last}\b", text), f"{path} has no {name}"


def test_contributing_draws_the_floors_that_the_linter_holds() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    floors = settings["tool"]["importlinter"]["contracts"][0]["layers"]

    # the drivers of other systems, which the linter has one by one
    drawn = ["integrations" if " : " in floor else floor for floor in floors]
    assert " → ".join(f"`{floor}`" for floor in drawn) in " ".join(CONTRIBUTING.split())


def list_modules(folder: Path) -> set[str]:
    return {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}


def test_every_part_of_the_house_has_a_floor_and_a_line() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    floors = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    placed = {part.strip() for floor in floors for part in re.split(r"[|:]", floor)}
    parts = list_modules(SOURCE) - {"__init__", "version", "integrations"}
    parts |= {f"integrations.{name}" for name in list_modules(SOURCE / "integrations") - {"__init__"}}

    assert placed == parts
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert {name for name in packages if f"`{name}/`" not in CONTRIBUTING} == set()


def test_the_files_to_change_for_something_new_exist() -> None:
    section = CONTRIBUTING.split("## How to add …")[1].split("\n## ")[0]
    paths = {
        path
        for path in re.findall(r"`([\w/]+\.(?:py|sql|html|md))`", section)
        if not re.search("NAME|TOPIC", path)
    }

    assert len(paths) > 10
    homes = (ROOT, ROOT / "src/fairlead", ROOT / "docs/reference")
    assert [path for path in paths if not any((home / path).exists() for home in homes)] == []


def test_no_class_name_is_used_twice() -> None:
    homes = defaultdict[str, list[str]](list)
    for path, text in _sources():
        for name in re.findall(r"^ *class ([A-Za-z]\w*)[(:]", text, re.MULTILINE):
            homes[name].append(str(path))

    assert {name: files for name, files in homes.items() if len(files) > 1 and name not in TWINS} == {}


def test_no_function_is_named_by_a_participle_alone() -> None:
    function = r"^( *@.*\n)? *(?:async )?def _*([a-z]+)_*\("
    named = [
        f"{path} {name}"
        for path, text in _sources()
        for decorator, name in re.findall(function, text, re.MULTILINE)
        if name in PARTICIPLES or (name.endswith("ed") and name not in VERBS)
        if "property" not in decorator
    ]

    assert named == []
