"""An attempt of a worker, and its handler as the worker sees it."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from fairlead.handlers.context import ProcessResult
from fairlead.model.outcome import Change, Outcome, decide
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.unstarted import UnstartedJobs


class RunningHandler(Protocol):
    """A running handler, as the worker sees it."""

    def cancel(self) -> None:
        """Ask it to stop."""

    def lose(self, grace: float) -> None:
        """Kill it after `grace` seconds, since its lease is lost."""

    @property
    def ran(self) -> ProcessResult | None:
        """The result of its subprocess, if it had one."""

    def kept_log(self) -> str:
        """The attempt's log."""

    @property
    def is_logging(self) -> bool:
        """Whether it runs and has logged."""

    def take_new_lines(self) -> list[str]:
        """The lines of its log that were not taken before."""


class WorkerAttempt:
    """One attempt of this worker. The code that starts it sets `run`, and calls `handle_end` once with the outcome.

    Before the handler begins, it calls `begin`.
    """

    __slots__ = (
        "_fence",
        "_unstarted",
        "canceled",
        "has_ended",
        "held",
        "is_given_back",
        "joined",
        "lost",
        "released",
        "run",
        "settles_at",
        "slots",
        "then",
        "worker_id",
    )

    def __init__(
        self,
        held: HeldJob,
        then: Callable[["WorkerAttempt", Outcome], None],
        worker_id: str | None = None,
        unstarted: UnstartedJobs | None = None,
        fence: Callable[[], object] | None = None,
    ) -> None:
        """`fence` calls `lose` if leases may have ended."""
        self.held = held
        self._fence = fence
        self._unstarted = unstarted
        # the heartbeat thread has returned the job to the queue before it began
        self.is_given_back = False
        self.then = then
        self.worker_id = worker_id
        self.run: RunningHandler | None = None
        self.lost = False
        self.released = False
        # how many of its worker's slots it takes
        self.slots = 1
        # a cancel was requested
        self.canceled = False
        # the success that its handler has written in its own transaction, which may not have committed
        self.joined: Change | None = None
        # that transaction has committed
        self.has_ended = False
        # from then on it is not blamed if the worker dies after a suspect starts
        self.settles_at = 0.0

    def begin(self) -> bool:
        """The handler begins now; called once. False if the job was given back or its lease lost meanwhile: then it must not."""
        unstarted, self._unstarted = self._unstarted, None
        if unstarted is not None and not unstarted.start(self.held):
            self.is_given_back = True
            return False
        return self.keeps_lease()

    def keeps_lease(self) -> bool:
        """Whether its lease has not ended, even if the process was stopped until now."""
        if self._fence is not None:
            self._fence()
        return not self.lost

    def handle_end(self, outcome: Outcome) -> None:
        """The handler has ended with this outcome, perhaps without having begun."""
        if self._unstarted is not None:
            self._unstarted.start(self.held)
        self.then(self, outcome)

    def ask_to_stop(self) -> None:
        """Ask the handler to stop."""
        self.canceled = True
        if self.run is not None:
            self.run.cancel()

    def lose(self, grace: float) -> None:
        """Stop the handler before another worker runs the job: the lease may be lost."""
        self.lost = True
        if self.run is not None:
            self.run.lose(grace)

    def change(self, outcome: Outcome) -> Change:
        """The job's change for this outcome, with the attempt's log."""
        change = decide(self.held.job, outcome)
        if self.run is None:
            return change
        if self.run.ran is not None:
            told = self.run.ran._asdict()
            return msgspec.structs.replace(change, log=told.pop("stdout"), ran=told)
        if text := self.run.kept_log():
            change = msgspec.structs.replace(change, log=text)
        return change


Start = Callable[[WorkerAttempt], None]
