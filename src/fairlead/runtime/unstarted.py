"""What a worker has claimed and not started: while its event loop is blocked, the heartbeat thread gives it back.

Two threads take from these records, and each entry goes to one of them: `dict.pop` and `dict.popitem` are atomic.
"""

from uuid import UUID

from fairlead.runtime.job_source import HeldJob


class UnstartedJobs:
    """The jobs of a worker that no handler has begun. Each is either started or taken back."""

    def __init__(self) -> None:
        # by identity: to hash a lease takes longer than all else here, and there are thousands of jobs a second
        self.jobs: dict[int, HeldJob] = {}

    def add(self, held: list[HeldJob]) -> None:
        """The worker holds these jobs, and has not started them."""
        self.jobs.update(zip(map(id, held), held, strict=True))

    def start(self, held: HeldJob) -> bool:
        """Start the job, or return False if it was taken back."""
        return self.jobs.pop(id(held), None) is not None

    def take_back(self) -> list[HeldJob]:
        """Take all jobs: none of them will start here. Safe from any thread."""
        taken = []
        while self.jobs:
            try:
                taken.append(self.jobs.popitem()[1])
            except KeyError:  # the last one has just started
                break
        return taken


class UnreadClaims:
    """The claims of a worker whose answers its event loop has not read. Each is either read or withdrawn."""

    def __init__(self) -> None:
        self._claims: dict[UUID, bool] = {}

    def begin(self, claim: UUID) -> None:
        """A claim is sent."""
        self._claims[claim] = True

    def read(self, claim: UUID) -> bool:
        """Its answer is read, or will not come. False if it was withdrawn: then its jobs must not start."""
        return self._claims.pop(claim, False)

    def withdraw(self) -> list[UUID]:
        """Withdraw all claims: the caller gives their jobs back. Safe from any thread."""
        withdrawn = []
        while self._claims:
            try:
                withdrawn.append(self._claims.popitem()[0])
            except KeyError:  # the last one has just been read
                break
        return withdrawn
