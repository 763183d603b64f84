"""Run a mutant's catchers: the tests and chaos runs that are expected to see it."""

import re
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.mutants.mutant import Catcher, Chaos, Interleavings, Mutant, Suite
from tests.mutants.scratch import ScratchTree
from tests.mutants.stepped import SCENARIOS

# A version in which not even this works needs no checker: everything would notice.
SMOKE = ("tests/mutants/smoke.py",)
STEPPED = ("tests/mutants/stepped.py",)
FOUND = "FindingError: "
SUITE_SECONDS = 600.0
# beyond the time of a run's faults: its start, its drain and its checks
CHAOS_EXTRA_SECONDS = 400.0
DRAIN_SECONDS = 150.0
# A test that failed, or whose database was inconsistent at its end, which a fixture asserts.
_FAILED = re.compile(
    r"^(?:FAILED (.+?)(?: - (.*))?|ERROR (\S+::.+?) - (AssertionError.*|assert .*))$", re.MULTILINE
)


class Seen(NamedTuple):
    """What a catcher saw: the name of a test or of a finding. Without one, it saw nothing."""

    finding: str = ""
    # why the catcher could not be run
    trouble: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """Whether a mutant was caught, by what, and what other catchers said."""

    mutant: str
    caught_by: str = ""
    finding: str = ""
    trouble: str = ""
    missed_by: tuple[str, ...] = ()
    seconds: float = 0.0


CATCHERS = ("chaos", "interleavings", "suite")


def name_of(catcher: Catcher) -> str:
    """The catcher's name in reports."""
    return type(catcher).__name__.lower()


def check_alive(tree: ScratchTree) -> str:
    """Why the tree is too broken to be a mutant; empty if it is not."""
    seen = _run_tests(tree, SMOKE)
    return "" if seen == Seen() else f"not even a plain job runs: {seen.finding or seen.trouble}"


def look(tree: ScratchTree, catcher: Catcher, expected: Collection[str] = ()) -> Seen:
    """Run a catcher in this tree. Of a chaos run, only the findings that are expected count, if some are."""
    match catcher:
        case Suite(tests):
            return _run_tests(tree, tests)
        case Interleavings(scenarios):
            return _run_tests(tree, STEPPED, {SCENARIOS: "|".join(scenarios)})
        case Chaos():
            return _run_chaos(tree, catcher, expected)


def _run_tests(tree: ScratchTree, tests: tuple[str, ...], variables: Mapping[str, str] | None = None) -> Seen:
    argv = ["-m", "pytest", "-q", "-x", "--tb=short", "-p", "no:cacheprovider", "--color=no", *tests]
    done = tree.run(argv, seconds=SUITE_SECONDS, variables={"COLUMNS": "400", **(variables or {})})
    if done.returncode == 0:
        return Seen()
    if done.returncode == 1 and (failed := _FAILED.search(done.stdout)):
        name, why = failed[1] or failed[3], failed[2] or failed[4] or ""
        if tests != STEPPED:
            return Seen(f"{name}: {why}")
        # any other error means that the scenario could not be stepped through this source
        return Seen(why.partition(FOUND)[2]) if FOUND in why else Seen(trouble=why)
    return Seen(trouble=_last_line(done.stdout))


class _Finding(msgspec.Struct):
    """What broke a rule, as the JSON report of a chaos run has it."""

    name: str
    text: str


class _Report(msgspec.Struct):
    """How often each rule was broken, and examples."""

    finding_counts: dict[str, int]
    findings: list[_Finding] = []

    def describe(self, expected: Collection[str]) -> str:
        """The names of the findings, and the text of one; empty if none of them was expected."""
        names = sorted(name for name, number in self.finding_counts.items() if number)
        if expected and not set(expected).intersection(names):
            return ""
        text = next((one.text for one in self.findings if one.name in (expected or names)), "")
        return f"{', '.join(names)}: {text}"


def _run_chaos(tree: ScratchTree, run: Chaos, expected: Collection[str]) -> Seen:
    with tree.changed(run.load), tempfile.TemporaryDirectory(dir=tree.root.parent) as folder:
        argv = ["-m", "fairlead.cli", "chaos", "--seed", str(run.seed), "--minutes", str(run.seconds / 60)]
        argv += [*(part for kind in run.kinds for part in ("--only", kind)), *run.options]
        argv += ["--drain-seconds", str(DRAIN_SECONDS), "--keep", str(Path(folder, "kept")), "--json"]
        done = tree.run(argv, seconds=run.seconds + CHAOS_EXTRA_SECONDS)
    if done.returncode == 0:
        return Seen()
    report = next((line for line in done.stdout.splitlines() if line.startswith('{"')), None)
    if done.returncode == 1 and report is not None:
        found = msgspec.json.decode(report, type=_Report)
        if said := found.describe(expected):
            return Seen(said)
        return Seen(trouble=f"other findings than expected: {found.describe(())}")
    return Seen(trouble=_last_line(done.stdout))


def judge(tree: ScratchTree, mutant: Mutant, kinds: tuple[str, ...] = ()) -> Verdict:
    """Apply a mutant and run its catchers, of these kinds if given, until one of them sees it."""
    mutant.apply(tree.root)
    if trouble := check_alive(tree):
        return Verdict(mutant.name, trouble=trouble)
    missed: list[str] = []
    for catcher in mutant.catchers:
        if kinds and name_of(catcher) not in kinds:
            continue
        seen = look(tree, catcher, mutant.findings)
        if seen.finding:
            return Verdict(mutant.name, name_of(catcher), seen.finding, missed_by=tuple(missed))
        missed.append(f"{name_of(catcher)} ({seen.trouble})" if seen.trouble else name_of(catcher))
    return Verdict(mutant.name, missed_by=tuple(missed))


def _last_line(output: str) -> str:
    lines = [line for line in output.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"
