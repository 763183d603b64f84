"""`make mutants ARGS="--generated"`: try wrong versions of the stored functions, and report which were caught.

make mutants ARGS="--generated"                      some of each function
make mutants ARGS="--generated claim budgets.lock.03f4"   those of a function, and a version by its name
make mutants ARGS="--generated --times 3"            three times as many
make mutants ARGS="--generated --calls calls.json"   with what is known of the tests, which is written there
make mutants ARGS="--generated --report docs/reliability.md"
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from fairlead.db import scratch
from tests.mutants.generated import report
from tests.mutants.generated.accepting import acceptance
from tests.mutants.generated.session import ORDER, UNSURE, Order, Result, Trial
from tests.mutants.generated.versions import (
    Version,
    choose_versions,
    list_names,
    list_sources,
)
from tests.mutants.mutant import ROOT
from tests.mutants.scratch import CONTAINED
from tests.thorough import FAST_MARKS

# Where tests are that call stored functions; of other folders only what no test of these calls.
TESTS = ("tests/db", "tests/store", "tests/actions", "tests/runtime", "tests/interleavings")
# What a test may take: with a version of a function it may wait for ever.
TEST_SECONDS = 120
LOOK_SECONDS = 1.0


def main(argv: Sequence[str]) -> int:
    """Try the versions that are named, or some of each function. The exit code is 1 unless exactly the known ones survive."""
    options = _parse(argv)
    with acceptance() as accepts:
        versions = list(choose_versions(options.names, accepts, options.times))
    if options.list:
        for version in versions:
            click.echo(f"{version.name:45} {version.wrong}")
        return 0
    with scratch.scratch_folder() as folder:
        calls = options.calls or folder / "calls.json"
        results = _try_all(versions, options, calls.resolve(), folder / "results.jsonl")
    click.echo(report.summarise(results))
    if options.json:
        options.json.write_bytes(report.render_json(versions, results))
    if options.report:
        report.write_report(options.report, versions, results)
    return 1 if report.list_wrong(results) else 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make mutants --generated", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="functions, or versions; all functions if none is named")
    parser.add_argument("--times", type=int, default=1, help="so many times as many versions as usual")
    parser.add_argument(
        "--calls", type=Path, help="a file that says which tests call which functions; written if it is new"
    )
    parser.add_argument(
        "--tests", type=lambda text: text.split(","), default=TESTS, help="folders and modules"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long tests are tried that do not see a version"
    )
    parser.add_argument(
        "--report", type=Path, help="a Markdown file: its table of generated mutants is replaced"
    )
    parser.add_argument("--json", type=Path, help="a file for the results as JSON")
    parser.add_argument("--list", action="store_true", help="show the versions and run nothing")
    options = parser.parse_args(argv)
    if unknown := sorted(set(options.names).difference(list_names())):
        parser.error(f"there is no stored function and no version {unknown[0]!r}; --list shows them")
    return options


def _try_all(
    versions: Sequence[Version], options: argparse.Namespace, calls: Path, results: Path
) -> list[Result]:
    """One result for each version. A process that could not go on is followed by another one, which tries again once."""
    done: dict[str, Result] = {}
    failures: dict[str, str] = {}
    while left := [one for one in versions if one.name not in done]:
        results.write_bytes(b"")
        last_line = _run_tests(left, options, calls, results)
        found = [msgspec.json.decode(line, type=Result) for line in results.read_bytes().splitlines()]
        sure = [one for one in found if not one.finding.startswith(UNSURE)]
        done.update((one.name, one) for one in sure)
        if len(sure) < len(left):
            name = left[len(sure)].name
            why = found[-1].finding if len(found) > len(sure) else f"the tests ended: {last_line}"
            if name in failures:
                done[name] = Result(name, why, 0)
            failures[name] = why
    return [done[one.name] for one in versions]


def _run_tests(versions: Sequence[Version], options: argparse.Namespace, calls: Path, results: Path) -> str:
    """Run a process of tests that tries these versions. Its last line."""
    sources = list_sources()
    trials = tuple(Trial(one.name, one.function, sources[one.function], one.text) for one in versions)
    with tempfile.TemporaryDirectory() as folder, Path(folder, "output").open("w+") as output:
        order = Path(folder, "order.json")
        order.write_bytes(msgspec.json.encode(Order(str(calls), str(results), trials, options.seconds)))
        argv = [
            sys.executable,
            str(CONTAINED),
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--tb=short",
            "--color=no",
        ]
        argv += ["-p", "no:cacheprovider", "-p", "tests.mutants.generated.session", "-n", "0"]
        argv += ["-o", f"timeout={TEST_SECONDS}", "-m", FAST_MARKS, *options.tests]
        environment = os.environ | {ORDER: str(order)}
        with subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=output, stderr=output) as process:
            _echo_results(process, results)
        output.seek(0)
        return ([line.strip() for line in output if line.strip()] or ["no output"])[-1][:300]


def _echo_results(process: "subprocess.Popen[bytes]", results: Path) -> None:
    """Until the process ends, a line for each result."""
    shown = 0
    running = True
    while running:
        try:
            process.wait(LOOK_SECONDS)
            running = False
        except subprocess.TimeoutExpired:
            pass
        lines = results.read_bytes().splitlines()
        for line in lines[shown:]:
            click.echo(report.describe(msgspec.json.decode(line, type=Result)))
        shown = len(lines)
