"""In CI a skipped test is a failure, apart from those that skips.toml allows: a tool that is missing must not hide a break."""

import os
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ALLOWED = Path(__file__).with_name("skips.toml")


class Skips:
    """A pytest plugin: one line with what was skipped and why; in CI the run fails for a skip that is not allowed."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self._reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self._reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK and self._list_refused():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for reason, count in self._reasons.most_common():
            terminalreporter.write_line(f"Skipped {count}: {reason}")
        for reason in self._list_refused():
            terminalreporter.write_line(
                f"FAILED: in CI no test may be skipped for this reason: {reason} (tests/skips.toml has the exceptions)",
                red=True,
            )

    def _list_refused(self) -> list[str]:
        """In CI, the reasons that are not allowed."""
        return find_refused(self._reasons) if os.environ.get("CI") else []


def find_refused(reasons: Counter[str]) -> list[str]:
    """The reasons that no entry of skips.toml allows here, for the user who runs the tests."""
    allowed = tomllib.loads(ALLOWED.read_text(encoding="utf-8"))
    is_root = os.geteuid() == 0
    starts = [*allowed["always"], *allowed["as_root" if is_root else "as_an_ordinary_user"]]
    if "GITHUB_ACTIONS" in os.environ:
        starts += allowed["on_github"]
    return [reason for reason in sorted(reasons) if not reason.startswith(tuple(starts))]
