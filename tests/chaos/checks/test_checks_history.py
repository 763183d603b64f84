"""Each rule about the history finds the one record that was changed against it."""

from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from fairlead.chaos import scenario
from fairlead.chaos.checks.check_run import IDLE, NOT_DRAINED, ORPHANED, SLOW
from fairlead.chaos.history import (
    AnswerRecord,
    BatchRecord,
    CallRecord,
    EndRecord,
    FaultRecord,
    HistoryRecord,
    ProcessRecord,
    SampleRecord,
    SecretRecord,
    StartRecord,
    StepRunRecord,
)
from tests.chaos.checks.played_run import GLOBEX, PLAN, PlayedRun
from tests.chaos.checks.tampering import Edit, Tampering
from tests.tables import each_case

pytestmark = pytest.mark.thorough

Records = list[HistoryRecord]


def without_faults(records: Records) -> Records:
    return [one for one in records if not isinstance(one, FaultRecord)]


def _call(records: Records, kind: str) -> CallRecord:
    return next(one for one in records if isinstance(one, CallRecord) and one.kind == kind)


def _answer(records: Records, call: UUID) -> AnswerRecord:
    return next(one for one in records if isinstance(one, AnswerRecord) and one.id == call)


def _change_answer(records: Records, kind: str, **changes: object) -> Records:
    answer = _answer(records, _call(records, kind).id)
    return [replace(one, **changes) if one is answer else one for one in records]


def _drop_call(records: Records, kind: str) -> Records:
    call = _call(records, kind).id
    return [one for one in records if not (isinstance(one, CallRecord | AnswerRecord) and one.id == call)]


def _shorten(records: Records) -> Records:
    answer = next(one for one in records if isinstance(one, AnswerRecord) and len(one.ids) > 2)
    return [replace(one, ids=one.ids[:-1]) if one is answer else one for one in records]


def _repeat_run(records: Records) -> Records:
    first = _call(records, "run")
    again = replace(first, id=uuid4(), what={**first.what, "repeat_of": first.id})
    return [*records, again, AnswerRecord(again.at, again.id, "ok", [uuid4()])]


def _start(records: Records, definition: str, attempt_no: int = 1) -> StartRecord:
    return next(
        one
        for one in records
        if isinstance(one, StartRecord) and one.definition == definition and one.attempt_no == attempt_no
    )


def _end(records: Records, start: StartRecord) -> EndRecord:
    return next(
        one
        for one in records
        if isinstance(one, EndRecord) and (one.job_id, one.attempt_no) == (start.job_id, start.attempt_no)
    )


def _drop_end(records: Records, definition: str) -> Records:
    # an attempt of it may have been lost, and has no end
    end = next(
        _end(records, one)
        for one in records
        if isinstance(one, StartRecord) and one.definition == definition and _has_end(records, one)
    )
    return [one for one in records if one is not end]


def _has_end(records: Records, start: StartRecord) -> bool:
    return any(
        isinstance(one, EndRecord) and (one.job_id, one.attempt_no) == (start.job_id, start.attempt_no)
        for one in records
    )


def _late_end(records: Records) -> Records:
    end = _end(records, _start(records, scenario.FLAKY))
    return [replace(one, at=one.at + 100) if one is end else one for one in records]


def _early_join(records: Records) -> Records:
    start = _start(records, scenario.JOIN)
    return [replace(one, at=one.at - 100) if one is start else one for one in records]


def _run_again(records: Records) -> Records:
    first = next(one for one in records if isinstance(one, StepRunRecord))
    return [*records, replace(first, attempt_no=99)]


def _without_steps(records: Records) -> Records:
    return [one for one in records if not isinstance(one, StepRunRecord)]


def _ask_early(records: Records, definition: str) -> Records:
    """As if the enqueues of this definition had been minutes apart, all of them long before its jobs started."""
    calls = [
        one.id
        for one in records
        if isinstance(one, CallRecord)
        and one.kind == "enqueue"
        and one.what["jobs"][0]["definition"] == definition
    ]
    earlier = {call: 100 * place for place, call in enumerate(reversed(calls), start=1)}
    return [
        replace(one, at=one.at - earlier[one.id])
        if isinstance(one, CallRecord | AnswerRecord) and one.id in earlier
        else one
        for one in records
    ]


def _drop_kind(records: Records, kind: str) -> Records:
    dropped = {one.id for one in records if isinstance(one, CallRecord) and one.kind == kind}
    return [one for one in records if not (isinstance(one, CallRecord | AnswerRecord) and one.id in dropped)]


def _run_wide_jobs_together(records: Records) -> Records:
    wide = {one.job_id for one in records if isinstance(one, StartRecord) and one.definition == scenario.WIDE}
    return [
        replace(one, at=one.at + 100) if isinstance(one, EndRecord) and one.job_id in wide else one
        for one in records
    ]


def _change_batch(records: Records, jobs: Sequence[UUID]) -> Records:
    return [replace(one, jobs=list(jobs)) if isinstance(one, BatchRecord) else one for one in records]


def _mix_batch(records: Records) -> Records:
    calls = [one for one in records if isinstance(one, CallRecord) and one.kind == "enqueue"]
    others = next(one for one in calls if one.tenant == GLOBEX)
    own = next(
        one for one in calls if one.tenant != GLOBEX and one.what["jobs"][0]["definition"] == scenario.QUICK
    )
    return _change_batch(records, [*_answer(records, own.id).ids, _answer(records, others.id).ids[0]])


def _rename_workers(records: Records) -> Records:
    return [replace(one, name="another") if isinstance(one, ProcessRecord) else one for one in records]


def _see_other_value(records: Records, number: int) -> Records:
    """As if the attempt that saw the last value of a secret had seen another one, and had been claimed long after it was set."""
    secrets = [one for one in records if isinstance(one, SecretRecord) and "/" not in one.owner]
    assert [one.number for one in secrets] == [1, 2]
    early = {one.id for one in records if isinstance(one, CallRecord) and one.kind == "secret"}
    return [
        replace(one, number=number)
        if one is secrets[1]
        else replace(one, at=one.at - 100)
        if isinstance(one, CallRecord | AnswerRecord) and one.id in early
        else one
        for one in records
    ]


def _swap_owner(records: Records) -> Records:
    return [replace(one, owner=GLOBEX) if isinstance(one, SecretRecord) else one for one in records]


def _give_wrong_labels(records: Records) -> Records:
    once = {"FAIRLEAD_LABELS": '["chaos=no"]'}
    return [
        replace(one, once=once) if isinstance(one, ProcessRecord) and one.name == PLAN.labeled_worker else one
        for one in records
    ]


def _accept_all_answers(records: Records) -> Records:
    answers = {one.id for one in records if isinstance(one, CallRecord) and one.kind == "answer"}
    return [
        replace(one, outcome="ok") if isinstance(one, AnswerRecord) and one.id in answers else one
        for one in records
    ]


def _refused_calls() -> list[HistoryRecord]:
    calls = [uuid4() for _ in range(20)]
    return [
        *(CallRecord(1.0, one, "order", "nobody", {"order": str(one)}) for one in calls),
        *(AnswerRecord(2.0, one, "fail", code="UndefinedTable") for one in calls),
    ]


BREAKAGES: list[tuple[str, Edit]] = [
    ("answer_incomplete", _shorten),
    ("job_of_failed_call", lambda records: _change_answer(records, "enqueue", outcome="fail")),
    ("order_unexpected", lambda records: _change_answer(records, "order", outcome="fail")),
    ("job_unexpected", lambda records: _drop_call(records, "enqueue")),
    ("event_unexpected", lambda records: _change_answer(records, "emit", outcome="fail")),
    ("run_unexpected", lambda records: _drop_kind(records, "run")),
    ("run_answer_differs", _repeat_run),
    ("retry_unexpected", lambda records: _drop_call(records, "retry")),
    ("cancel_unexpected", lambda records: _drop_call(records, "cancel")),
    ("not_dropped", lambda records: _ask_early(records, scenario.DROP_NEW)),
    ("not_replaced", lambda records: _ask_early(records, scenario.REPLACE_QUEUED)),
    ("not_replaced", lambda records: _ask_early(records, scenario.CANCEL_RUNNING)),
    ("debounced_twice", lambda records: _ask_early(records, scenario.SETTLED)),
    ("batch_mixed", _mix_batch),
    ("batch_too_large", lambda records: _change_batch(records, [_start(records, scenario.QUICK).job_id] * 2)),
    ("worker_unfit", _rename_workers),
    ("worker_unfit", _give_wrong_labels),
    ("slots_exceeded", _run_wide_jobs_together),
    ("secret_stale", lambda records: _see_other_value(records, 1)),
    ("secret_stale", lambda records: _see_other_value(records, 7)),
    ("secret_wrong", _swap_owner),
    ("success_unfounded", lambda records: _drop_end(records, scenario.QUICK)),
    ("failure_unfounded", lambda records: _drop_end(records, scenario.FLAKY)),
    ("start_repeated", lambda records: [*records, _start(records, scenario.QUICK)]),
    (
        "start_unrecorded",
        lambda records: [*records, replace(_start(records, scenario.QUICK), attempt_no=9)],
    ),
    ("handlers_overlap", _late_end),
    ("handler_early", _early_join),
    ("step_repeated", _run_again),
    ("step_forgotten", _run_again),
    ("step_unfounded", _without_steps),
    ("attack_accepted", lambda records: _change_answer(records, "attack", outcome="ok")),
    ("sample_exceeded", lambda records: [*records, SampleRecord(records[-1].at, {"tenant globex": 9})]),
    ("process_crashed", without_faults),
    ("call_never_acknowledged", lambda records: _drop_kind(records, "order") + _refused_calls()),
    ("history_empty", lambda records: [one for one in records if not isinstance(one, StartRecord)]),
    ("answered_twice", _accept_all_answers),
    ("samples_missing", lambda records: [one for one in records if not isinstance(one, SampleRecord)]),
]


@each_case(("name", "edit"), BREAKAGES)
async def test_a_changed_record_is_found(tampering: Tampering, name: str, edit: Edit) -> None:
    assert await tampering.find(name, edit=edit)


async def test_a_call_without_an_answer_may_have_had_its_effect_or_not(
    tampering: Tampering, played_run: PlayedRun
) -> None:
    call = played_run.ids["call single"]

    def lose_answer(records: Records) -> Sequence[HistoryRecord]:
        return [one for one in records if not (isinstance(one, AnswerRecord) and one.id == call)]

    gone = "delete from fairlead.job_records where id = %(single_0)s"

    assert await tampering.find("job_of_failed_call", edit=lose_answer) == []
    assert await tampering.find("job_lost", gone, edit=lose_answer) == []


async def test_in_a_long_run_a_rule_that_had_nothing_to_check_is_a_finding(tampering: Tampering) -> None:
    def leave_out_attacks(records: Records) -> Sequence[HistoryRecord]:
        return _drop_kind(records, "attack")

    long = await tampering.check(edit=leave_out_attacks, full_jobs=1)
    short = await tampering.check(edit=leave_out_attacks, full_jobs=1_000_000)
    other_load = await tampering.check(edit=leave_out_attacks, full_jobs=1, plan=replace(PLAN, hostile=None))

    assert [(one.name, one.subject) for one in long.findings] == [(IDLE, "attack_accepted")]
    assert [one.not_checked for one in (long, short, other_load)] == [["attack_accepted"]] * 3
    assert [one.findings for one in (short, other_load)] == [[], []]


async def test_an_orphan_a_full_queue_and_a_slow_recovery_are_findings(tampering: Tampering) -> None:
    plan = replace(PLAN, lease_seconds=-6.0, sweep_seconds=0.0)

    lenient = await tampering.check(plan=plan, orphans=["pid 7: fairlead worker"], left={"jobs": 2})
    strict = await tampering.check(plan=plan, strict_times=True)

    assert [lenient.finding_counts[name] for name in (ORPHANED, NOT_DRAINED, SLOW)] == [1, 1, 0]
    [slow] = [one for one in lenient.recoveries if not one.is_met]
    assert (slow.kind, slow.times.number) == ("kill_worker", 3)
    [alone] = [one for one in lenient.recoveries if one.kind == "kill_worker" and one.bar is None]
    assert alone.times.number == 1
    assert strict.finding_counts[SLOW] == 1
