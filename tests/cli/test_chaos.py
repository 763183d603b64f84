"""`fairlead chaos`: what it refuses, and its list of faults. tests/chaos runs it."""

import json
from pathlib import Path

from fairlead.chaos.faults.kinds import FAULT_KINDS
from tests.processes import run
from tests.tables import each_case


@each_case(
    ("options", "message"),
    [
        (["--minutes=0"], "--minutes must be more than 0"),
        (["--minutes=nan"], "--minutes must be more than 0"),
        (["--rate=0"], "--rate must be more than 0"),
        (["--lease-seconds=0.5"], "--lease-seconds must be 1 to 600"),
        (["--drain-seconds=0"], "--drain-seconds must be more than 0"),
        (["--workers=0"], "--workers must be 1 or more"),
        (["--agents=-1"], "must be 0 or more"),
        (["--only=flood"], "There is no fault flood. The faults are: "),
        (
            ["--report=missing/folder/report.md"],
            "The folder of --report missing/folder/report.md does not exist.",
        ),
    ],
)
def test_options_that_cannot_be_run_are_refused_before_anything_starts(
    options: list[str], message: str
) -> None:
    refused = run("chaos", *options, env={})

    assert refused.returncode == 1
    assert message in " ".join(refused.stderr.split())
    assert refused.stdout == ""


def test_a_folder_with_another_history_is_refused(tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()

    refused = run("chaos", f"--keep={tmp_path}", env={})

    assert refused.returncode == 1
    assert "is not empty" in refused.stderr


def test_the_kinds_of_faults_are_listed() -> None:
    listed = run("chaos", "--list", "--json", env={})

    assert [one["kind"] for one in json.loads(listed.stdout)["items"]] == [kind.name for kind in FAULT_KINDS]
