"""What the tests cost: each run writes the CPU seconds of its folders, and `make budget` holds them against budget.toml."""

import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tests.meter import Meter, Speed

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "budget.toml"
RESULTS = ROOT / ".budget"
# A folder or a whole run past its budget times this fails `make budget`.
TOLERANCE = 1.5
# A test of the fast part should stay below this.
LONGEST_TEST = 1.0
PROPERTY = "cpu_seconds"
FAST, DEEP = "fast", "thorough"


class Overrun(NamedTuple):
    """A folder, or a whole run, that costs more than its budget allows."""

    run: str
    folder: str
    spent: float
    budget: float

    def __str__(self) -> str:
        return f"{self.run}: {self.folder} took {self.spent:.0f} CPU seconds; its budget is {self.budget:.0f}"


class Budget:
    """A pytest plugin: each test process measures its tests, the first process adds them up."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._meter, self._speed = Meter(), Speed()
        self._read = 0.0
        self._folders: dict[str, float] = defaultdict(float)
        self._tests: dict[str, float] = defaultdict(float)

    def pytest_collection_finish(self) -> None:
        self._read = self._meter.read()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Charge a test with what was spent since the report before: with the fixtures that it is the first to need."""
        report = yield
        now = self._meter.read()
        # less than before: a process has ended that nobody waited for
        report.user_properties.append((PROPERTY, max(0.0, now - self._read) * self._speed.measure()))
        self._read = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        [*_, seconds] = [value for name, value in report.user_properties if name == PROPERTY]
        assert isinstance(seconds, float)
        self._folders[find_folder(report.nodeid)] += seconds
        self._tests[report.nodeid] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table of this run, and the tests of the fast part that take too long. A file has all tests."""
        # a test process has only its own tests; what it forks may end as a whole run does
        if not self._folders or hasattr(terminalreporter.config, "workerinput"):
            return
        RESULTS.mkdir(exist_ok=True)
        spent = {folder: round(seconds, 1) for folder, seconds in sorted(self._folders.items())}
        tests = {
            test: round(cost, 2) for test, cost in sorted(self._tests.items(), key=lambda pair: -pair[1])
        }
        result = {"speed": round(self._speed.measure(), 2), "folders": spent, "tests": tests}
        (RESULTS / f"{self._run}.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        budget = read_table().get(self._run, {})
        terminalreporter.section(
            f"CPU seconds of the {self._run} tests (this machine: {result['speed']} of the budget's)"
        )
        for folder, seconds in [*spent.items(), ("all", sum(spent.values()))]:
            terminalreporter.write_line(f"{seconds:8.1f} of {budget.get(folder, 0):5.0f}  {folder}")
        if self._run == FAST:
            for test, cost in tests.items():
                if cost > LONGEST_TEST:
                    terminalreporter.write_line(f"{cost:8.1f} s, more than {LONGEST_TEST:g}: {test}")


def find_folder(node_id: str) -> str:
    """`tests/store` for a test in that folder or below, `tests` for one at the top."""
    path = node_id.partition("::")[0]
    return "/".join(path.split("/")[:2]) if path.count("/") > 1 else "tests"


def read_table() -> dict[str, dict[str, float]]:
    """CPU seconds by run and folder, on the scale of the reference machine."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def find_overruns(run: str, spent: Mapping[str, float], budget: Mapping[str, float]) -> list[Overrun]:
    """The folders past their budget, those without one, and the whole run if it is past its own."""
    with_sum = {**spent, "all": sum(spent.values())}
    return [
        Overrun(run, folder, seconds, budget.get(folder, 0.0))
        for folder, seconds in with_sum.items()
        if seconds > TOLERANCE * budget.get(folder, 0.0)
    ]


def main() -> int:
    """Hold the last runs against their budgets: 1 if one of them costs too much, or if there was none."""
    table = read_table()
    runs = [run for run in table if (RESULTS / f"{run}.json").exists()]
    if not runs:
        click.echo("No run was measured yet: run make test first.", err=True)
        return 1
    overruns: list[Overrun] = []
    for run in runs:
        spent = json.loads((RESULTS / f"{run}.json").read_text(encoding="utf-8"))["folders"]
        click.echo(f"{run}: {sum(spent.values()):.0f} of {table[run]['all']:.0f} CPU seconds")
        overruns += find_overruns(run, spent, table[run])
    for overrun in overruns:
        click.echo(
            f"{overrun}. Make its tests cheaper, mark some as thorough, or raise the budget in tests/budget.toml."
        )
    return 1 if overruns else 0


if __name__ == "__main__":
    sys.exit(main())
