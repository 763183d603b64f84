"""How the suite is divided into two speeds, what it may skip, and what it costs."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.budget import DEEP, FAST, find_folder, find_overruns, read_table
from tests.meter import Meter
from tests.skips import find_refused
from tests.thorough import FAST_MARKS, THOROUGH_MARKS, has_no_test_for

ROOT = Path(__file__).parents[1]
# Works for 0.3 CPU seconds in a child, and then waits for the end of its input.
PROGRAM = """
import subprocess, sys, time
work = "import time\\nwhile time.process_time() < 0.3: pass\\nprint(flush=True)\\ninput()"
subprocess.run([sys.executable, "-c", work])
"""


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("pytestmark = pytest.mark.thorough\n", [FAST_MARKS]),
        ("pytestmark = [\n    pytest.mark.thorough,\n]\n", [FAST_MARKS]),
        ("@pytest.mark.thorough\ndef test_it() -> None: ...\n", []),
        ('@pytest.mark.parametrize("n", mostly_thorough([1, 2]))\ndef test_it(n: int) -> None: ...\n', []),
        ("@pytest.mark.deeper\ndef test_it() -> None: ...\n", []),
        ("def test_it() -> None: ...\n", [THOROUGH_MARKS]),
    ],
)
def test_a_module_is_left_out_whose_text_says_that_it_has_no_test_for_a_run(
    tmp_path: Path, text: str, left_out: Sequence[str]
) -> None:
    module = tmp_path / "test_module.py"
    module.write_text(text)
    runs = (FAST_MARKS, THOROUGH_MARKS, "")
    assert [marks for marks in runs if has_no_test_for(marks, module)] == left_out


def test_ci_refuses_a_skip_for_a_tool_that_can_be_installed() -> None:
    reasons = Counter(["needs helm. Not checked: helm lint", "needs Chromium: make tools"])
    assert find_refused(reasons) == ["needs Chromium: make tools"]


def test_every_target_and_script_that_ci_runs_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))["jobs"]
    for name, job in jobs.items():
        nightly = " ".join(job.get("strategy", {}).get("matrix", {}).get("target", []))
        commands = [
            step["run"].replace("${{ matrix.target }}", nightly) for step in job["steps"] if "run" in step
        ]
        words = [word for command in commands if command.startswith("make ") for word in command.split()[1:]]
        asked = {word for word in words if re.fullmatch(r"[a-z-]+", word)}
        scripts = [command for command in commands if command.startswith(".")]
        assert asked <= targets, name
        assert asked or scripts, name
        assert all((ROOT / script).exists() for script in scripts), name


def test_ci_runs_the_tests_that_need_root_as_root() -> None:
    named = re.findall(r"tests/\S+\.py", (ROOT / ".ci/run").read_text("utf-8"))
    skipped = re.compile(r"uid\(\) != 0, reason=.needs root")
    needing = [path for path in ROOT.glob("tests/**/test_*.py") if skipped.search(path.read_text("utf-8"))]
    assert sorted(named) == sorted(str(path.relative_to(ROOT)) for path in needing)


def test_a_folder_half_as_much_again_as_its_budget_is_an_overrun() -> None:
    spent = {"tests": 14.0, "tests/store": 16.0, "tests/new": 1.0}
    overruns = find_overruns(FAST, spent, {"tests": 10.0, "tests/store": 10.0, "all": 30.0})
    assert [(overrun.folder, overrun.spent) for overrun in overruns] == [
        ("tests/store", 16),
        ("tests/new", 1),
    ]
    assert find_overruns(FAST, spent, {**spent, "all": 20.0})[0].folder == "all"


def test_every_folder_of_tests_has_a_budget(pytestconfig: pytest.Config) -> None:
    table = read_table()
    tests = pytestconfig.rootpath / "tests"
    modules = (str(module.relative_to(tests.parent)) for module in tests.rglob("test_*.py"))
    folders = {find_folder(module) for module in modules if "/vendor/" not in module}
    assert folders - {*table[FAST], *table[DEEP]} == set()


def test_the_meter_counts_the_processes_that_run_below_this_one() -> None:
    meter = Meter()
    before = meter.read()
    argv = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert meter.read() - before > 0.25  # it counts in ticks of a hundredth
        process.communicate(b"\n")
    assert meter.read() - before > 0.25
