"""The history that the run itself writes: phases, faults, samples and starts of processes."""

from pathlib import Path

from fairlead.chaos.history import FaultRecord, HistoryRecord, HistoryWriter, PhaseRecord, now


class RunHistory(HistoryWriter):
    """Also counts faults, for the progress of the run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "run.history")
        self.faults = 0

    def write(self, record: HistoryRecord) -> None:
        super().write(record)
        self.faults += isinstance(record, FaultRecord)

    def begin_phase(self, name: str) -> None:
        """Record that the run enters a phase."""
        self.write(PhaseRecord(now(), name))
