"""Which database is used is said, above all when a running `fairlead dev` has another one."""

import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from fairlead.db.dev_record import DevRecord, find_records, keep_record
from fairlead.runtime.database_notice import find_other_devs, report_embedded

AT = "http://127.0.0.1:8000"


def test_an_embedded_database_is_named_on_standard_error_with_how_to_choose_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    structlog.reset_defaults()
    report_embedded(tmp_path / ".fairlead", joined=False)

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"fairlead: using the embedded PostgreSQL in {tmp_path / '.fairlead'} "
        "(choose another with FAIRLEAD_DATABASE_URL or FAIRLEAD_DATA_DIR), started now.\n"
    )


def test_a_dev_that_runs_in_another_folder_is_named_with_how_to_use_its_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    structlog.reset_defaults()
    theirs = str(tmp_path / "theirs" / ".fairlead")
    with keep_record(DevRecord(AT, theirs)):
        report_embedded(tmp_path / ".fairlead", joined=False)
        assert find_other_devs(Path(theirs)) == []

    last = capsys.readouterr().err.splitlines()[-1]
    assert last == (
        f"fairlead: `fairlead dev` at {AT} uses another database; to use that one too, set FAIRLEAD_DATA_DIR={theirs}"
    )


def test_with_a_log_set_up_it_goes_to_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    structlog.configure()
    with keep_record(DevRecord(AT, "/theirs")), capture_logs() as lines:
        report_embedded(tmp_path, joined=False)
    structlog.reset_defaults()

    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("embedded_database", "info"),
        ("dev_uses_another_database", "warning"),
    ]
    assert capsys.readouterr().err == ""


def test_a_dev_that_has_ended_or_was_killed_is_not_named(tmp_path: Path) -> None:
    with keep_record(DevRecord(AT, "/ended")):
        assert [one.data_dir for one in find_records()] == ["/ended"]
    assert find_records() == []

    code = (
        "import os\nfrom fairlead.db.dev_record import DevRecord, find_records, keep_record\n"
        f"with keep_record(DevRecord({AT!r}, '/killed')):\n    print(len(find_records()), flush=True)\n    os._exit(1)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert killed.stdout == "1\n"
    assert find_records() == []
