"""Retry or replay a durable function from a step: its records from there on are forgotten, or not copied."""

from collections.abc import Sequence
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.errors import Fault, StepUnknown
from fairlead.model.durable import JobStep, Place, comes_after, parse_place
from fairlead.model.job import Job
from fairlead.store import durable

PAGE = 1000
MOST_NAMED = 10


async def forget_from(tx: Tx, job: Job, from_step: str | int) -> JobStep:
    """Forget a step of an ended job, which is locked, and all that came after it. The step."""
    found, _, after = await _split_at(tx, job.id, from_step)
    await durable.forget_steps(tx, job.id, job.tenant_id, after)
    return found


async def copy_before(tx: Tx, job: Job, from_step: str | int, *, new_id: UUID) -> JobStep:
    """Give a new job the records of an ended one, which is locked, before a step. The step."""
    found, before, _ = await _split_at(tx, job.id, from_step)
    await durable.copy_steps(tx, job.id, before, new_id=new_id)
    return found


async def _split_at(
    tx: Tx, job_id: UUID, from_step: str | int
) -> tuple[JobStep, Sequence[Place], Sequence[Place]]:
    """A step of a job, the places of the steps before it and beside it, and of those from it on."""
    steps = await _list_all(tx, job_id)
    found = _choose(job_id, steps, str(from_step), by_name=isinstance(from_step, str))
    start = _place_of(found)
    before: list[Place] = []
    after: list[Place] = []
    for place in map(_place_of, steps):
        (after if comes_after(place, start) else before).append(place)
    return found, before, after


async def _list_all(tx: Tx, job_id: UUID) -> list[JobStep]:
    steps: list[JobStep] = []
    after = Place("", -1)
    while True:
        page = await durable.list_steps(tx, job_id, after=after, limit=PAGE)
        steps += page
        if page.last is None:
            return steps
        after = _place_of(page.last)


def _place_of(step: JobStep) -> Place:
    return Place(step.branch, step.number - 1)


def _choose(job_id: UUID, steps: Sequence[JobStep], wanted: str, *, by_name: bool) -> JobStep:
    """The step with this name as it is shown, or at this place."""
    named = [step for step in steps if by_name and step.name == wanted]
    place = None if named else parse_place(wanted)
    found = named or [step for step in steps if _place_of(step) == place]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(step.place for step in found[:MOST_NAMED])
        raise StepUnknown(
            f"Job {job_id} has {len(found)} steps with the name {wanted!r}: give the place of one instead, such as {places}.",
            [Fault("from_step", "has several")],
        )
    raise StepUnknown(
        f"Job {job_id} has recorded no step {wanted!r:.80}. Give the name or the place of one that `fairlead jobs steps {job_id}` lists.",
        [Fault("from_step", "unknown")],
    )
