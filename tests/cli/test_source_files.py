"""Which files `fairlead dev APP` watches, and what counts as a change."""

import os
from pathlib import Path

import pytest

from fairlead.cli.source_files import changed_files, folders_of, take_snapshot


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(file: Path, text: str = "") -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return str(file)


def test_source_files_below_the_folder_are_watched_and_environments_and_hidden_folders_are_not(
    folder: Path,
) -> None:
    watched = {write(folder / "hello.py"), write(folder / "shop" / "jobs" / "mail.py")}
    write(folder / ".venv" / "lib" / "x.py")
    write(folder / "env" / "pyvenv.cfg")
    write(folder / "env" / "lib" / "x.py")
    write(folder / "__pycache__" / "x.py")
    write(folder / "notes.txt")

    assert set(take_snapshot([folder])) == watched


def test_a_file_that_is_added_written_or_removed_is_a_change(folder: Path) -> None:
    same, written, removed = (write(folder / name, "x = 1") for name in ("a.py", "b.py", "c.py"))
    before = take_snapshot([folder])
    assert changed_files(before, take_snapshot([folder])) == []

    Path(written).write_text("x = 2")
    os.utime(written, ns=(1, 1))
    Path(removed).unlink()
    added = write(folder / "d.py")

    assert changed_files(before, take_snapshot([folder])) == [written, removed, added]
    assert same in before


def test_a_folder_that_is_gone_has_no_files(folder: Path) -> None:
    assert take_snapshot([folder / "nosuch"]) == {}


def test_the_folder_of_a_module_elsewhere_is_watched_too_but_not_that_of_a_library(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere").resolve()
    write(elsewhere / "its_own_jobs.py")
    monkeypatch.syspath_prepend(str(elsewhere))
    write(folder / "hello.py")

    assert folders_of("hello:fl") == [folder]
    assert folders_of("its_own_jobs:fl") == [folder, elsewhere]
    assert folders_of("pytest:fl") == [folder]
    for wrong in ("nosuch_module:fl", ":fl", "hello.py", "a b:fl"):
        assert folders_of(wrong) == [folder]
