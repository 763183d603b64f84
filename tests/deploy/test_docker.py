"""The image and the compose file. Where there is no Docker, they are read, and what they start is started here."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
import yaml

from tests.deploy.files import DEPLOY, ROOT, read_compose, read_dockerfile, read_list, require_command
from tests.processes import FAIRLEAD, free_port, run, started, until
from tests.waiting import SECONDS

LOCK = ROOT / "requirements.lock"
OURS = ("migrate", "serve", "worker", "scheduler")


def instructions(name: str) -> list[str]:
    return [rest for word, rest in read_dockerfile() if word == name]


# The image


def test_the_image_is_built_in_stages_and_has_no_root() -> None:
    stages = instructions("FROM")
    assert [stage.endswith(" AS build") for stage in stages] == [True, False]
    last = [word for word, _ in read_dockerfile()]
    last = last[len(last) - last[::-1].index("FROM") :]
    assert "HEALTHCHECK" in last
    assert instructions("USER") == ["10001"]  # a number: Kubernetes cannot see that a name is not root


def test_the_image_starts_a_server_without_a_shell() -> None:
    [entry], [command] = instructions("ENTRYPOINT"), instructions("CMD")
    assert read_list(entry) == ["fairlead"]
    require_command(read_list(command))


def test_what_the_image_copies_exists_and_is_not_ignored() -> None:
    sources = [one.split() for one in instructions("COPY") if not one.startswith("--from")]
    named = [name for one in sources for name in one[:-1]]
    assert [name for name in named if not (ROOT / name).exists()] == []
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert sorted(f"!{name}" for name in named) == sorted(line for line in ignored if line[0] == "!")


def test_everything_in_the_image_has_a_hash_of_the_lock_file() -> None:
    """But for the wheel that is built there, which brings nothing along."""
    installs = re.findall(r"pip (?:install|wheel) [^&]*", " ".join(instructions("RUN")))
    hashed = [one for one in installs if "--require-hashes" in one]
    assert len(hashed) == 3
    assert [one for one in installs if one not in hashed and "--no-deps" not in one] == []
    assert [one for one in installs if "pip wheel" in one and "--no-build-isolation" not in one] == []


def test_both_stages_take_the_image_that_may_be_named_with_a_digest() -> None:
    assert {stage.split()[0] for stage in instructions("FROM")} == {"${BASE}"}
    assert instructions("ARG")[:2] == ["PYTHON=3.13", "BASE=python:${PYTHON}-slim"]


@pytest.mark.thorough
def test_the_commands_of_the_image_install_what_is_locked(tmp_path: Path) -> None:
    """The commands of the first stage, run here: they need a package index, and no Docker."""
    if "BUILD_IMAGE" not in os.environ:
        pytest.skip("builds the image only with BUILD_IMAGE=1: its first stage fetches 50 MB")
    source = tmp_path / "src"
    ignored = shutil.ignore_patterns("__pycache__")
    source.mkdir()
    stage = read_dockerfile()
    stage = stage[: [word for word, _ in stage].index("USER")]
    for word, rest in stage:
        if word == "COPY" and not rest.startswith("--from"):
            for name in rest.split()[:-1]:
                copy = partial(shutil.copytree, ignore=ignored) if (ROOT / name).is_dir() else shutil.copy
                copy(ROOT / name, source / name)
        elif word == "RUN" and "useradd" not in rest:
            script = rest.replace("/opt/", f"{tmp_path}/")
            env = os.environ | {"EXTRAS": "email,otel", **_trusted()}
            subprocess.run(["sh", "-ec", script], cwd=source, env=env, check=True, timeout=600)
    argv = [str(tmp_path / "fairlead" / "bin" / "pip"), "list", "--format=freeze", "--exclude=pip"]
    shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    ours = [line for line in shown if not line.startswith(("fairlead==", "setuptools=="))]
    locked = re.findall(r"^([a-z0-9._-]+)(?:\[.*\])?(==[^\s;]+)", LOCK.read_text("utf-8"), re.MULTILINE)
    assert {line.lower().replace("_", "-") for line in ours} <= {"".join(one) for one in locked}
    assert {line.partition("==")[0] for line in ours} >= {"aiosmtplib", "opentelemetry-sdk", "uvicorn"}
    assert not {"pytest", "hatchling", "uv"} & {line.partition("==")[0] for line in ours}


def _trusted() -> dict[str, str]:
    """The certificates that pip was told to trust, for uv."""
    named = os.environ.get("PIP_CERT")
    return {"SSL_CERT_FILE": named} if named else {}


@pytest.mark.thorough
def test_docker_builds_the_image() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], check=False, capture_output=True).returncode:
        pytest.skip("needs a Docker that runs. Not checked: that the image can be built, and starts")
    if "BUILD_IMAGE" not in os.environ:
        pytest.skip("builds the image only with BUILD_IMAGE=1: it fetches 200 MB")
    argv = [docker, "build", "--file", "deploy/Dockerfile", "--tag", "fairlead:test", "."]
    subprocess.run(argv, cwd=ROOT, check=True, timeout=1800)
    argv = [docker, "run", "--rm", "--read-only", "fairlead:test", "--version"]
    assert "fairlead" in subprocess.run(argv, check=True, capture_output=True, text=True).stdout


# The compose file


def test_compose_starts_commands_that_exist() -> None:
    services = read_compose()
    assert set(services) == {"postgres", *OURS}
    for name in OURS:
        require_command(services[name]["command"])


def test_compose_waits_for_health_in_order() -> None:
    services = read_compose()
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert "pg_isready" in services["postgres"]["healthcheck"]["test"]
    for name in ("serve", "worker", "scheduler"):
        condition = {"condition": "service_completed_successfully"}
        assert services[name]["depends_on"] == {"migrate": condition}
    # a service that ends, or serves nothing, must not inherit the image's question to a server
    assert services["migrate"]["healthcheck"] == services["scheduler"]["healthcheck"] == {"disable": True}


def test_compose_gives_jobs_time_and_no_rights() -> None:
    for name in OURS:
        service = read_compose()[name]
        assert int(service["stop_grace_period"].removesuffix("s")) > 35
        assert (service["read_only"], service["cap_drop"], service["init"]) == (True, ["ALL"], True)


def test_compose_has_no_password_and_settings_that_exist() -> None:
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    settings = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    assert set(re.findall(r"PASSWORD: (\S+)", text)) == {"${POSTGRES_PASSWORD:?write"}
    assert [name for name in re.findall(r"FAIRLEAD_[A-Z_]+[A-Z]", text) if f"`{name}`" not in settings] == []


@pytest.mark.thorough
def test_compose_is_read_by_docker() -> None:
    docker = shutil.which("docker")
    if (
        docker is None
        or subprocess.run([docker, "compose", "version"], check=False, capture_output=True).returncode
    ):
        pytest.skip("needs docker compose. Not checked: that it reads the file")
    env = os.environ | {"POSTGRES_PASSWORD": "secret"}
    argv = [docker, "compose", "--file", str(DEPLOY / "compose.yaml"), "config", "--quiet"]
    subprocess.run(argv, env=env, check=True)


class Site:
    """The services of the compose file as processes here, with their own ports and database."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self.ports = {"8000": str(free_port()), "9100": str(free_port())}

    def translate(self, words: list[str]) -> list[str]:
        """The words with the ports of this site; `python` and `0.0.0.0` as they are here."""
        known = {"python": sys.executable, "0.0.0.0": "127.0.0.1", **self.ports}  # noqa: S104
        words = [known.get(word, word) for word in words]
        return [re.sub(r":(8000|9100)/", lambda port: f":{self.ports[port[1]]}/", word) for word in words]

    def env(self, service: dict[str, Any]) -> dict[str, str]:
        ours = {
            name: str(value) for name, value in service["environment"].items() if name.startswith("FAIRLEAD")
        }
        ours = {name: self.translate([value])[0] for name, value in ours.items()}
        return ours | {"FAIRLEAD_DATABASE_URL": self._url}

    def is_healthy(self, words: list[str]) -> bool:
        argv = self.translate(words)
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0


@pytest.fixture
def site(empty_database_url: str) -> Site:
    return Site(empty_database_url)


@pytest.fixture
def empty_database_url(database_url: str) -> str:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("drop schema fairlead cascade")
    return database_url


@pytest.mark.thorough
def test_the_services_start_in_order_become_healthy_and_run_a_job(site: Site) -> None:
    services = read_compose()
    [health] = instructions("HEALTHCHECK")
    checks = {
        "serve": read_list(health.partition("CMD ")[2]),
        "worker": services["worker"]["healthcheck"]["test"][1:],
    }
    assert not any(site.is_healthy(check) for check in checks.values())

    done = run(*services["migrate"]["command"], env=site.env(services["migrate"]))
    assert done.returncode == 0, done.stderr
    with ExitStack() as running:
        for name in ("serve", "worker", "scheduler"):
            argv = [FAIRLEAD, *site.translate(services[name]["command"])]
            running.enter_context(started(argv, env=site.env(services[name]), cwd=DEPLOY / "app"))
        for name, check in checks.items():
            until(partial(site.is_healthy, check), f"the health of {name}", longest_pause=1)
        env = site.env(services["serve"])
        assert run("tenants", "add", "acme", env=env).returncode == 0
        made = run("jobs", "enqueue", "greet", '{"name": "Ada"}', "--tenant", "acme", env=env)
        assert made.returncode == 0, made.stderr
        token = run("tokens", "create", "me", "--role", "viewer", "--tenant", "acme", "--json", env=env)
        secret = yaml.safe_load(token.stdout)["secret"]
        base = f"http://127.0.0.1:{site.ports['8000']}/api/v1"
        headers = {"Authorization": f"Bearer {secret}"}

        def output() -> Any:
            [job] = httpx2.get(f"{base}/jobs", headers=headers, timeout=SECONDS).json()["items"]
            return httpx2.get(f"{base}/jobs/{job['id']}", headers=headers, timeout=SECONDS).json()["output"]

        assert until(output, "the job's output", longest_pause=1) == "Hello, Ada"
        # what KEDA asks
        keda = list(yaml.safe_load_all((DEPLOY / "keda" / "scaledobject.yaml").read_text("utf-8")))
        [trigger] = keda[1]["spec"]["triggers"]
        url = trigger["metadata"]["url"].replace("http://fairlead-serve:8000/api/v1", base)
        answer = httpx2.get(url, headers=headers, timeout=SECONDS)
        assert answer.json()[trigger["metadata"]["valueLocation"]] == 0
