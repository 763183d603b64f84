"""Who is to blame for a lost worker: only one that nothing else can have been the cause beside."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from fairlead.model.blame import EarlierLoss, WorkerLease, assign_blame
from fairlead.model.job import JobStatus
from fairlead.model.outcome import MAX_SUSPECTED, Backoff, Blame, Lost, RetryBudget, decide
from tests.tables import each_case

LEASE = 30.0
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def lease(started: float, *, ends: float = 40, probation: float | None = None) -> WorkerLease:
    until = None if probation is None else at(started + probation)
    return WorkerLease(uuid4(), 1, "w", at(started), at(ends), until)


def blames(*held: WorkerLease, before: EarlierLoss | None = None) -> list[Blame]:
    return [assign_blame(one, held, before, lease_seconds=LEASE) for one in held]


def test_a_job_that_was_all_its_worker_held_is_charged() -> None:
    assert blames(lease(0)) == [Blame.CHARGED]


def test_of_several_none_is_charged_and_all_are_suspects() -> None:
    assert blames(lease(0), lease(5), lease(9)) == [Blame.SUSPECTED] * 3


def test_a_suspect_on_probation_is_accused_and_the_others_are_cleared() -> None:
    # last known to live at 10, when the suspect had begun and its probation was not over
    assert blames(lease(0), lease(0), lease(9, probation=10)) == [Blame.CLEARED, Blame.CLEARED, Blame.ACCUSED]


def test_a_suspect_whose_probation_was_over_is_one_of_several() -> None:
    assert blames(lease(-60), lease(-20, probation=10)) == [Blame.SUSPECTED] * 2


def test_a_suspect_beside_which_another_began_is_one_of_several() -> None:
    assert blames(lease(5, probation=10), lease(8)) == [Blame.SUSPECTED] * 2


def test_a_lease_that_ends_last_had_the_company_of_those_that_ended_before() -> None:
    assert blames(lease(0), before=EarlierLoss("w", at(33), blamed=False)) == [Blame.SUSPECTED]
    assert blames(lease(0), before=EarlierLoss("w", at(33), blamed=True)) == [Blame.CLEARED]
    assert blames(lease(9, probation=10), before=EarlierLoss("w", at(33), blamed=True)) == [Blame.ACCUSED]


def test_what_a_worker_lost_before_a_job_began_is_no_company() -> None:
    assert blames(lease(0), before=EarlierLoss("w", at(-1), blamed=True)) == [Blame.CHARGED]


def test_what_a_worker_lost_long_before_it_died_is_no_company() -> None:
    assert blames(lease(-1000), before=EarlierLoss("w", at(-300), blamed=True)) == [Blame.CHARGED]


def lost(blame: Blame, *, charged: int = 0, suspected: int = 0) -> tuple[JobStatus, int, int, bool, bool]:
    change = decide(RetryBudget(1, 0, charged, Backoff()), Lost(blame, suspected))
    return change.status, change.loss, change.suspicion, change.alone, change.accused


QUEUED, DEAD = JobStatus.QUEUED, JobStatus.DEAD_LETTER


@each_case(
    ("how", "charged", "suspected", "expected"),
    [
        # after the first loss a job comes back as any other
        (Blame.CHARGED, 0, 0, (QUEUED, 1, 0, False, False)),
        (Blame.SUSPECTED, 0, 0, (QUEUED, 0, 1, False, False)),
        (Blame.CHARGED, 1, 0, (QUEUED, 1, 0, True, True)),
        (Blame.CHARGED, 0, 1, (QUEUED, 1, 0, True, True)),
        (Blame.SUSPECTED, 0, 1, (QUEUED, 0, 1, True, False)),
        (Blame.ACCUSED, 0, 2, (QUEUED, 0, 1, True, True)),
        (Blame.CLEARED, 2, 9, (QUEUED, 0, 0, False, False)),
        (Blame.CHARGED, 2, 0, (DEAD, 1, 0, False, True)),
        (Blame.SUSPECTED, 2, 50, (QUEUED, 0, 1, True, False)),
        (Blame.SUSPECTED, 0, MAX_SUSPECTED - 1, (DEAD, 0, 1, False, False)),
        (Blame.CLEARED, 0, MAX_SUSPECTED - 1, (QUEUED, 0, 0, False, False)),
    ],
)
def test_what_a_loss_does_to_a_job(
    how: Blame, charged: int, suspected: int, expected: tuple[JobStatus, int, int, bool, bool]
) -> None:
    assert lost(how, charged=charged, suspected=suspected) == expected


def test_a_job_of_a_host_waits_for_no_other_worker() -> None:
    assert not decide(RetryBudget(1, 0, 1, Backoff()), Lost(Blame.SUSPECTED, 5, on_host=True)).alone
