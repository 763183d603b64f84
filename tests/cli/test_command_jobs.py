"""Commands as a person has them: published from fairlead.toml, run by `fairlead worker`, followed as they write."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_commands import Shell
from tests.processes import FAIRLEAD, run, started, until
from tests.tables import each_case
from tests.waiting import SECONDS

SORT = """
[commands.sort]
argv = ["/usr/bin/sort", "--output={payload.to}", "{payload.from}"]
description = "Sort a file"
timeout = 60
"""
# Says something on both streams, then waits for a file before it goes on.
TALK = """
[commands.talk]
argv = ["/bin/sh", "-c", "printf '\\\\033[31mone\\\\033[0m\\\\n'; echo two >&2; until [ -e \\"$1\\" ]; do sleep 0.05; done; echo three", "sh", "{payload.file}"]
env = ["PATH"]
timeout = 60
"""
APP = "tests.acceptance.jobs_under_test:fl"
ROOT = Path(__file__).parents[2]


class Machine(Shell):
    """A folder with a fairlead.toml, and a database."""

    def __init__(self, database_url: str, folder: Path) -> None:
        super().__init__(database_url)
        self.file = folder / "fairlead.toml"
        self.env |= {"FAIRLEAD_CONFIG": str(self.file), "FAIRLEAD_POLL_SECONDS": "0.2"}

    def allows(self, text: str) -> None:
        self.file.write_text(text)

    def synced(self, *flags: str) -> dict[str, str]:
        return {one["key"]: one["result"] for one in self.json("definitions", "sync", *flags)["items"]}

    def enqueued(self, key: str, **payload: Any) -> str:
        return str(self.json("jobs", "enqueue", key, json.dumps(payload), "--tenant", "acme")["id"])

    def job(self, job_id: str) -> Any:
        return self.json("jobs", "show", job_id)

    def ended(self, job_id: str) -> Any:
        return until(
            lambda: found if (found := self.job(job_id))["finished_at"] else None, f"the end of {job_id}"
        )

    @contextmanager
    def worker(self, *argv: str) -> Iterator["subprocess.Popen[str]"]:
        """A worker that serves, until the end of the block."""
        with started([FAIRLEAD, "worker", *argv], env=self.env, cwd=ROOT) as process:
            yield process
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS)
        assert process.returncode == 0


@pytest.fixture
def machine(database_url: str, tmp_path: Path) -> Machine:
    made = Machine(database_url, tmp_path)
    made.allows(SORT)
    return made


def serves(process: "subprocess.Popen[str]") -> str:
    """The line in which a worker says what it serves."""
    for line in process.stdout or ():
        if line.startswith("serving"):
            return line
    raise AssertionError("the worker ended without serving")


# Definitions


def test_definitions_are_created_left_as_they_are_and_changed(machine: Machine) -> None:
    assert machine.synced() == {"sort": "created"}
    [made] = [one for one in machine.json("definitions", "list")["items"] if one["key"] == "sort"]
    assert (made["kind"], made["description"], made["timeout_seconds"]) == ("command", "Sort a file", 60)
    assert made["arg_schema"]["required"] == ["to", "from"]
    assert machine.refused("jobs", "enqueue", "sort", "{}", "--tenant", "acme") == "payload_invalid"
    assert machine.synced() == {"sort": "unchanged"}

    machine.allows(SORT.replace("60", "90") + SORT.replace("commands.sort", "commands.again"))
    did = machine.json("definitions", "sync")["items"]
    assert [(one["key"], one["result"], one["version"], one["fields"]) for one in did] == [
        ("again", "created", 1, []),
        ("sort", "changed", 2, ["timeout_seconds"]),
    ]
    assert "unchanged" in machine("definitions", "sync").output


def test_what_the_file_does_not_say_stays_as_somebody_set_it(machine: Machine) -> None:
    machine.synced()
    machine.json("definitions", "put", "sort", "--max-attempts", "7", "--inactive")

    assert machine.synced() == {"sort": "unchanged"}


def test_a_dry_run_tells_and_changes_nothing(machine: Machine) -> None:
    assert machine.synced("--dry-run") == {"sort": "created"}
    assert "would be" in machine("definitions", "sync", "--dry-run").output
    assert machine.refused("jobs", "enqueue", "sort", "{}", "--tenant", "acme") == "definition_unknown"
    assert machine.synced() == {"sort": "created"}


def test_a_definition_of_another_kind_is_only_taken_by_force(machine: Machine) -> None:
    machine.allows(SORT + SORT.replace("commands.sort", "commands.anything"))

    assert machine.refused("definitions", "sync") == "definition_exists"
    assert machine.refused("jobs", "enqueue", "sort", "{}", "--tenant", "acme") == "definition_unknown"
    assert machine.synced("--force") == {"anything": "changed", "sort": "created"}


def test_a_definition_of_a_host_takes_the_schema_of_its_command_and_stays_one(machine: Machine) -> None:
    machine.json("definitions", "install", "servers")
    argv = '["/bin/true", "{payload.serverInstanceId}", "{payload.map}"]'
    machine.allows(f"[commands.SERVER_START]\nargv = {argv}\n")

    assert machine.synced() == {"SERVER_START": "changed"}

    [made] = [one for one in machine.json("definitions", "list")["items"] if one["key"] == "SERVER_START"]
    assert (made["kind"], made["resource_pointer"]) == ("host", "/serverInstanceId")
    assert made["arg_schema"]["required"] == ["serverInstanceId", "map"]


def test_a_value_that_begins_with_a_dash_is_refused_in_words(machine: Machine) -> None:
    machine.synced()
    machine.allows('[commands.talk]\nargv = ["/bin/echo", "{payload.text}"]\n')
    machine.synced()

    refused = machine("jobs", "enqueue", "talk", '{"text": "-rf"}', "--tenant", "acme")

    assert "/text: must not begin with -, which the command could take for an option" in " ".join(
        refused.output.split()
    )


def test_definitions_can_be_published_where_the_program_is_not(machine: Machine) -> None:
    machine.allows(SORT.replace("/usr/bin/sort", "/opt/elsewhere/sort"))

    assert machine.synced() == {"sort": "created"}


@each_case(
    ("text", "code"),
    [
        ("", "invalid_input"),
        ("[commands.sort]", "command_invalid"),
        ("[commands", "setting_invalid"),
        ('[commands."2 sort"]\nargv = ["/usr/bin/sort"]', "command_invalid"),
    ],
)
def test_a_file_that_says_nothing_or_nonsense_is_refused(machine: Machine, text: str, code: str) -> None:
    machine.allows(text)

    assert machine.refused("definitions", "sync") == code


# Workers


def test_a_worker_without_an_application_runs_the_commands_and_says_so(
    machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("b\na\n")
    machine.synced()
    with machine.worker() as process:
        assert serves(process) == "serving only the commands sort; Ctrl-C stops\n"
        job = machine.ended(
            machine.enqueued("sort", **{"from": str(tmp_path / "in"), "to": str(tmp_path / "out")})
        )

    assert (job["status"], (tmp_path / "out").read_text()) == ("succeeded", "a\nb\n")
    [attempt] = job["attempts"]
    assert (attempt["exit_code"], attempt["signal"], attempt["pid"] > 0) == (0, None, True)
    assert "exit 0" in machine("jobs", "show", job["id"]).output


def test_a_worker_with_an_application_runs_both(machine: Machine) -> None:
    machine.synced()
    with machine.worker(APP) as process:
        line = serves(process)

    assert line.startswith("serving ")
    assert line.endswith(" and the commands sort; Ctrl-C stops\n")
    assert "on_the_loop" in line


def test_a_worker_with_nothing_to_run_is_refused(machine: Machine) -> None:
    machine.allows("")

    done = run("worker", env=machine.env)

    assert (done.returncode, done.stdout) == (1, "")
    assert "There is nothing to run" in done.stderr
    assert str(machine.file) in done.stderr.replace("\n", "")


def test_a_command_that_cannot_be_run_here_keeps_the_worker_from_starting(machine: Machine) -> None:
    machine.allows(SORT.replace("/usr/bin/sort", "/opt/elsewhere/sort"))

    done = run("worker", env=machine.env)

    assert (done.returncode, "command_invalid" in done.stderr) == (1, True)


def test_a_definition_that_is_no_command_is_not_run_as_one(machine: Machine, tmp_path: Path) -> None:
    machine.allows(TALK + TALK.replace("commands.talk", "commands.anything"))
    machine.synced("--force")
    machine.json("definitions", "put", "anything", "--kind", "function")
    (tmp_path / "go").touch()
    with machine.worker() as process:
        serves(process)
        function = machine.enqueued("anything", file=str(tmp_path / "go"))
        assert machine.ended(machine.enqueued("talk", file=str(tmp_path / "go")))["status"] == "succeeded"
        assert machine.job(function)["status"] == "queued"


@pytest.mark.thorough
def test_a_definition_that_is_published_later_is_served_from_then_on(
    machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "in").touch()
    with machine.worker() as process:
        serves(process)
        machine.synced()
        job_id = machine.enqueued("sort", **{"from": str(tmp_path / "in"), "to": str(tmp_path / "out")})

        assert machine.ended(job_id)["status"] == "succeeded"


@pytest.mark.thorough
def test_dev_publishes_and_runs_the_commands_of_the_file(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "in").touch()
    argv = [FAIRLEAD, "dev", "--port", "0", "--no-demo", "--data-dir", str(tmp_path)]
    with started(argv, env=machine.env, cwd=ROOT) as process:
        until((tmp_path / "dev.json").exists, "dev to be ready")
        job_id = machine.enqueued("sort", **{"from": str(tmp_path / "in"), "to": str(tmp_path / "out")})
        assert machine.ended(job_id)["status"] == "succeeded"
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, "runs the commands sort" in said) == (0, True)


# Output


@pytest.mark.thorough
def test_the_output_of_a_running_command_is_followed_to_its_end(machine: Machine, tmp_path: Path) -> None:
    machine.allows(TALK)
    machine.synced()
    with machine.worker() as process:
        serves(process)
        job_id = machine.enqueued("talk", file=str(tmp_path / "go"))
        argv = [FAIRLEAD, "jobs", "logs", "-f", job_id]
        with started(argv, env=machine.env, cwd=ROOT) as following:
            assert following.stdout is not None
            lines = sorted(following.stdout.readline() for _ in range(2))
            assert lines == ["one\n", "two\n"]
            assert machine.job(job_id)["status"] == "running"
            (tmp_path / "go").touch()
            rest, _ = following.communicate(timeout=SECONDS)
        assert (rest, following.returncode) == ("three\n", 0)
    assert machine.job(job_id)["status"] == "succeeded"

    apart = run("jobs", "logs", job_id, env=machine.env)
    assert (apart.stdout, apart.stderr) == ("one\nthree\n", "two\n")
    colours = run("jobs", "logs", job_id, "--keep-ansi", env=machine.env)
    assert colours.stdout == "\x1b[31mone\x1b[0m\nthree\n"

    chunks = [
        json.loads(line)
        for line in run("jobs", "logs", job_id, "--json", env=machine.env).stdout.splitlines()
    ]
    assert "\x1b[31m" in "".join(one["text"] for one in chunks)
    assert [one["seq"] for one in chunks] == sorted({one["seq"] for one in chunks})
    place = f"{chunks[-2]['attempt_no']}.{chunks[-2]['seq']}"
    rest_of_it = run("jobs", "logs", job_id, "-f", "--cursor", place, env=machine.env)
    assert (rest_of_it.stdout, rest_of_it.stderr) == ("three\n", "")
    plain = run("jobs", "logs", job_id, "--json", "--strip-ansi", env=machine.env)
    assert "\\u001b" not in plain.stdout
