"""The progress bar of a tenant's move."""

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlead.cli import output
from fairlead.model.tenant_move import CopyProgress, MoveStep, TenantMove

STEPS = {
    MoveStep.GATE: "waiting for running jobs and open transactions",
    MoveStep.COPY: "copying rows",
    MoveStep.FLIP: "writing the directory",
    MoveStep.OPEN: "opening the tenant in its new cell",
    MoveStep.REMOVE: "removing rows from the old cell",
    MoveStep.REOPEN: "taking the move back",
}


class MoveProgress:
    """Shows the step of a move and how many rows are copied, on standard error if it is a terminal."""

    def __init__(self, *, shown: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=output.console(stderr=True),
            transient=True,
            disable=not shown or not output.console(stderr=True).is_terminal,
        )
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, move: TenantMove, progress: CopyProgress | None) -> None:
        """Show this step of the move."""
        self._progress.update(self._task, description=f"{move.slug}: {STEPS[move.step]}")
        if progress is not None:
            self._progress.update(self._task, completed=progress.rows, total=progress.of)
