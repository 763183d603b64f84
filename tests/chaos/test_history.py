"""The files of a run's history."""

from pathlib import Path

from fairlead.chaos.history import ENDING, HistoryWriter, PhaseRecord, read_history


def test_a_record_that_is_being_written_is_not_read_yet(tmp_path: Path) -> None:
    file = tmp_path / f"run{ENDING}"
    history = HistoryWriter(file)
    history.write(PhaseRecord(1.0, "load"))
    history.write(PhaseRecord(2.0, "faults"))
    history.close()
    whole = file.read_bytes()

    file.write_bytes(whole[:-5])

    assert read_history(tmp_path) == [PhaseRecord(1.0, "load")]
