"""The packages that a release publishes: the short version of `make release`, without a network."""

import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import httpx2
import pytest
import yaml

from fairlead.version import __version__
from tests import typescript
from tests.processes import environment, run_to_end
from tests.release import (
    NewUser,
    build,
    check_sdist,
    check_wheel,
    cut,
    find_versions,
    make_environment,
)
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[1]
WORKFLOW = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")


def test_the_wheel_has_everything_and_runs_in_an_environment_of_its_own(tmp_path: Path) -> None:
    wheel, sdist = build(tmp_path)
    check_wheel(wheel)
    check_sdist(sdist)

    programs = make_environment(tmp_path / "env", wheel, "--no-deps", "--offline", str(wheel))
    # The dependencies of this environment, after those of its own; its editable Fairlead is not found that way.
    site = Path(sysconfig.get_path("purelib", vars={"base": str(programs.parent)}))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (tmp_path / "project").mkdir()
    user = NewUser(programs, tmp_path / "project")
    assert __version__ in user.run("fairlead", "--version")
    where = user.run("python", "-c", "import fairlead; print(fairlead.__file__)")
    assert where.startswith(str(programs.parent))
    # it has every file of the sources, from which the tests of `fairlead dev` start it
    run_dev(user)


def run_dev(user: NewUser) -> None:
    with user.dev("fairlead", "dev", "--port", "0") as said:
        assert httpx2.get(f"{said['url']}/readyz", timeout=SECONDS).status_code == 200
        assert httpx2.get(f"{said['url']}/console/sign-in", timeout=SECONDS).status_code == 200
        told = user.run("fairlead", "jobs", "enqueue", "demo.greet", '{"name": "Ada"}', "--tenant", "demo")
        assert "enqueued" in told


def test_the_version_is_the_same_everywhere() -> None:
    assert set(find_versions()) != set()
    assert {name: found for name, found in find_versions().items() if found != {__version__}} == {}


def test_a_cut_gives_the_unreleased_entries_a_section() -> None:
    text = (
        "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n\n## [0.1.0] - 2026-01-01\n\n- Begun.\n"
    )

    changed = cut(text, "0.2.0", "2026-02-01")

    assert "## [Unreleased]\n\n## [0.2.0] - 2026-02-01\n\n### Added\n\n- A thing.\n\n## [0.1.0]" in changed
    for wrong in ("0.1.0", "two", "0.2"):
        with pytest.raises(AssertionError):
            cut(text, wrong, "2026-02-01")
    with pytest.raises(AssertionError, match="nothing is unreleased"):
        cut(changed, "0.3.0", "2026-02-02")


def test_the_workflow_publishes_what_was_proved_without_a_stored_secret() -> None:
    document = yaml.safe_load(WORKFLOW)
    jobs = document["jobs"]
    assert set(jobs) == {"build", "pypi", "npm"}
    for name in ("pypi", "npm"):
        assert jobs[name]["permissions"]["id-token"] == "write"
        assert jobs[name]["needs"] == "build"
    assert "id-token" not in jobs["build"].get("permissions", {})
    assert "secrets." not in WORKFLOW
    made = re.findall(r"\bmake ([a-z-]+)", WORKFLOW)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert "release" in made
    assert set(made) <= set(targets)


@pytest.mark.skipif(typescript.find_node() is None, reason=typescript.NEEDS_NODE)
def test_the_npm_package_has_what_it_exports_and_its_licence() -> None:
    argv = [*typescript._npm(), "pack", "--dry-run", "--json", "--ignore-scripts"]
    done = subprocess.run(
        argv, cwd=typescript.PACKAGE, check=True, capture_output=True, text=True, timeout=5 * SECONDS
    )
    [packed] = json.loads(done.stdout)
    names = {one["path"] for one in packed["files"]}
    assert (packed["name"], packed["version"]) == ("fairlead", __version__)
    assert {"LICENSE", "README.md", "package.json"} <= names
    assert [name for name in names if name.startswith(("src/", "test/", "node_modules/"))] == []


def test_the_release_can_be_asked_what_it_does() -> None:
    done = run_to_end([sys.executable, "-m", "tests.release", "what"], env=environment(), cwd=ROOT)
    assert (done.returncode, "cut 0.2.0" in done.stderr) == (1, True)
