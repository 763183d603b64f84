"""The TypeScript client and worker, against a real server: as its tests, its package and its readme use it."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import given, typescript
from tests.processes import FAIRLEAD, environment, run, started
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

RENEW = "renew it: make typescript"
# Long enough for a busy machine: a job is told of its cancel within a third, and a lost lease soon ends.
LEASE_SECONDS = "30"


class Served(NamedTuple):
    """A server, and a token of each role."""

    url: str
    tokens: dict[str, str]

    def environment(self, role: str = "worker") -> dict[str, str]:
        return environment(
            FAIRLEAD_URL=self.url, FAIRLEAD_TOKEN=self.tokens[role], FAIRLEAD_TOKENS=json.dumps(self.tokens)
        )


@pytest.fixture(scope="session")
def package() -> Path:
    """The built package."""
    typescript.require_build()
    return typescript.PACKAGE


@pytest.fixture
def served(database_url: str, tmp_path: Path) -> Iterator[Served]:
    env = {"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_LEASE_SECONDS": LEASE_SECONDS}
    tokens = {}
    for role in ("application", "operator", "worker", "super_admin"):
        tenant = () if role == "super_admin" else ("--tenant", given.TENANT)
        made = run("tokens", "create", f"ts-{role}", "--role", role, *tenant, "--json", env=env)
        tokens[role] = json.loads(made.stdout)["secret"]
    with (
        (tmp_path / "server.log").open("w") as log,
        started([FAIRLEAD, "serve", "--port", "0"], env=env, stderr=log) as process,
    ):
        assert process.stdout is not None
        told = process.stdout.readline()
        found = re.search(r"http://[^\s,]+", told)
        assert found, told
        yield Served(found.group(), tokens)


def run_node(*argv: str, env: dict[str, str], cwd: Path) -> str:
    node = typescript.find_node()
    assert node is not None
    done = subprocess.run(
        [node, *argv], env=env, cwd=cwd, capture_output=True, text=True, timeout=5 * SECONDS, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_types_are_of_this_openapi_document() -> None:
    assert typescript.describe_document() in typescript.TYPES.read_text("utf-8"), RENEW


def test_the_codes_are_those_of_the_errors() -> None:
    assert typescript.CODES.read_text("utf-8") == typescript.generate_codes(), RENEW


def test_the_types_are_as_this_generator_made_them() -> None:
    described, _, text = typescript.TYPES.read_text("utf-8").partition("\n\n")

    assert typescript.describe_generator() in described, RENEW
    assert typescript.describe_text(text) in described, RENEW
    typescript.require_build()
    assert typescript.TYPES.read_text("utf-8") == typescript.generate_types(), RENEW


def test_the_client_and_the_worker_pass_their_tests(package: Path, served: Served) -> None:
    run_node(
        "--test",
        *sorted(str(path) for path in package.glob("test/*.test.mjs")),
        env=served.environment(),
        cwd=package,
    )


CONSUMER = """
import { Fairlead, FairleadError, type Job, type JobOptions } from "fairlead";

const options: JobOptions = { priority: 1, dedupe_key: "a", delay_seconds: 2 };
// @ts-expect-error: there is no such option
const wrong: JobOptions = { prioritee: 1 };
// @ts-expect-error: a token is required
const fl: Fairlead = new Fairlead({ url: "http://127.0.0.1" });

export async function use(job: Job<{ image: string }>): Promise<number> {
  const made = await fl.enqueue<{ n: number }>("resize", { image: job.payload.image }, options);
  const status: "queued" | "running" | "succeeded" | "failed" | "dead_letter" | "canceled" = (await made.read()).status;
  try {
    return (await made.result({ timeout: 1 })).n + status.length;
  } catch (error) {
    if (error instanceof FairleadError && error.code === "job_failed") return error.errors.length;
    throw error;
  }
}
fl.worker({ concurrency: 1 }).handle<{ image: string }, number>("resize", use);
export { wrong };
"""


@pytest.fixture(scope="module")
def project(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty project into which the packed package is installed."""
    parent = tmp_path_factory.mktemp("packed")
    packed = typescript.npm("pack", "--pack-destination", str(parent), cwd=package)
    assert packed.returncode == 0, packed.stderr
    [archive] = parent.glob("fairlead-*.tgz")
    folder = parent / "project"
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true}')
    installed = typescript.npm("install", "--offline", str(archive), cwd=folder)
    assert installed.returncode == 0, installed.stderr
    return folder


def programs_of_the_readme() -> dict[str, str]:
    blocks = re.findall(
        r"```js\n// (\S+)\n(.*?)```", (typescript.PACKAGE / "README.md").read_text("utf-8"), re.DOTALL
    )
    return dict(blocks)


def test_the_programs_of_the_readme_run_with_the_packed_package(project: Path, served: Served) -> None:
    env = served.environment("super_admin")
    put = 'await fl.request("POST", "/admin/jobs/definitions", { body: { key: "resize" } })'
    opened = "new Fairlead({ url: process.env.FAIRLEAD_URL, token: process.env.FAIRLEAD_TOKEN })"
    define = f'const {{ Fairlead }} = require("fairlead"); (async () => {{ const fl = {opened}; {put}; }})();'
    run_node("--eval", define, env=env, cwd=project)  # CommonJS
    programs = programs_of_the_readme()
    for name, text in programs.items():
        (project / name).write_text(text, encoding="utf-8")

    node = typescript.find_node()
    with started([str(node), "worker.mjs"], env=served.environment(), cwd=project) as worker:
        told = run_node("enqueue.mjs", env=served.environment("application"), cwd=project)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(SECONDS) == 0

    assert set(programs) == {"enqueue.mjs", "worker.mjs"}
    assert told == "{ resized: 'a.png' }\n"


def test_typescript_programs_of_both_kinds_compile_against_the_packed_package(
    project: Path, package: Path
) -> None:
    for name in ("use.mts", "use.cts"):
        (project / name).write_text(CONSUMER)
    options = {
        "module": "nodenext",
        "target": "es2022",
        "strict": True,
        "noEmit": True,
        "types": ["node"],
        "typeRoots": [str(package / "node_modules" / "@types")],
    }
    configuration = {"compilerOptions": options, "files": ["use.mts", "use.cts"]}
    (project / "tsconfig.json").write_text(json.dumps(configuration))
    compiler = package / "node_modules" / "typescript-native" / "bin" / "tsc"

    run_node(str(compiler), "-p", ".", env=environment(), cwd=project)


def test_the_package_contains_only_what_it_needs(project: Path) -> None:
    folder = project / "node_modules" / "fairlead"

    assert {path.name for path in folder.iterdir()} == {"README.md", "LICENSE", "dist", "package.json"}
    assert {path.name for path in (folder / "dist").iterdir()} == {"esm", "cjs"}
    manifest = json.loads((folder / "package.json").read_text())
    assert "dependencies" not in manifest
    assert manifest["version"] == version("fairlead")


def test_no_file_of_the_package_names_a_registry() -> None:
    tracked = [path for path in typescript.PACKAGE.glob("*") if path.is_file()]

    assert [path.name for path in tracked if re.search(r"https?://registry\.", path.read_text("utf-8"))] == []
