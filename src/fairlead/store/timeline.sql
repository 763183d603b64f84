-- The times of jobs and steps, for drawings. Every list is bounded.

-- name: attempts
-- The first attempts of each of these jobs.
select a.job_id, a.attempt_no, a.status, a.started_at, a.finished_at
from unnest(%(ids)s::uuid[]) as o(id)
cross join lateral (
    select a.job_id, a.attempt_no, a.status, a.started_at, a.finished_at from fairlead.attempts a
    where a.job_id = o.id order by a.attempt_no limit %(each)s) a
order by a.job_id, a.attempt_no;

-- name: steps
-- The first steps of a run in the order of their release, each with its job and the run that its job waits for. Of a step
-- with items: when the first of its first hundred items began.
select s.place, s.name, s.definition_key, s.state, s.items, s.started_at as queued_at, s.finished_at, job.id as job_id,
    began.at as started_at, sub.id as run_id, sub.key as run_key, sub.status as run_status, sub.created_at as run_created_at,
    sub.finished_at as run_finished_at
from (
    select * from fairlead.workflow_steps s where s.run_id = %(run_id)s and s.started_at is not null
    order by s.started_at, s.place limit %(limit)s) s
left join lateral (
    select j.id from fairlead.jobs j
    where s.items is null and j.workflow_run_id = s.run_id and j.workflow_step = s.place
    order by j.workflow_item, j.id desc limit 1) job on true
left join lateral (
    select min(i.started_at) as at from (
        select j.started_at from fairlead.jobs j
        where s.items is not null and j.workflow_run_id = s.run_id and j.workflow_step = s.place
        order by j.workflow_item limit 100) i) began on true
left join lateral (
    select r.id, r.key, r.status, r.created_at, r.finished_at from fairlead.workflow_runs r
    where r.parent_job_id = job.id order by r.id desc limit 1) sub on true
order by s.started_at, s.place;
