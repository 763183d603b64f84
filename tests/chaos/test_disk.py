"""The disk of a chaos run."""

import os
from pathlib import Path

import pytest

from fairlead.chaos.faults.disk import mount_disk
from fairlead.errors import DiskNotMounted

pytestmark = pytest.mark.thorough


def test_a_full_disk_takes_nothing_and_a_freed_one_does(tmp_path: Path) -> None:
    try:
        with mount_disk(tmp_path, room=8 << 20) as disk:
            (tmp_path / "data").write_bytes(b"x" * 100_000)
            disk.fill()
            with pytest.raises(OSError, match="No space left"):
                (tmp_path / "more").write_bytes(b"x" * 100_000)
            assert (tmp_path / "data").stat().st_size == 100_000
            disk.free()
            (tmp_path / "more").write_bytes(b"x" * 100_000)
    except DiskNotMounted as error:
        pytest.skip(error.message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may mount")
def test_who_is_not_root_is_told(tmp_path: Path) -> None:
    with pytest.raises(DiskNotMounted, match="Only root"), mount_disk(tmp_path):
        pass
