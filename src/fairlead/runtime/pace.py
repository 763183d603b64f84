"""How fast attempts end, to know how many jobs a worker will start in a moment."""

from fairlead.lease_clock import lease_clock

# How many jobs a worker claims at most at once.
CLAIM_BATCH = 500
# A batch that runs, and one that is claimed meanwhile.
MOST_AHEAD = 2 * CLAIM_BATCH
# how long it counts ended attempts to know its pace
PACE_SECONDS = 0.05


class Pace:
    """The pace of one worker."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin to measure again: claim nothing ahead until then."""
        self._since, self._ended = lease_clock(), -1
        self._rate = 0.0

    def measure(self, ended: int, *, queue_is_full: bool) -> None:
        """Note how many attempts have ended so far; while the queue has less than the worker takes, there is no pace."""
        now = lease_clock()
        if not queue_is_full or self._ended < 0:
            self._since, self._ended, self._rate = now, ended, 0.0
        elif now - self._since >= PACE_SECONDS:
            self._rate = (ended - self._ended) / (now - self._since)
            self._since, self._ended = now, ended

    def jobs_in(self, seconds: float) -> int:
        """How many jobs will end in these seconds; 0 if that is not known."""
        return min(MOST_AHEAD, int(self._rate * seconds))
