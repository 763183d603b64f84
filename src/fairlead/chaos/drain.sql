-- What a run waits for at its end. A run is drained when every count is zero.

-- name: left
select
    (select count(*) from fairlead.ready) as ready_jobs,
    (select count(*) from fairlead.leases) as running_jobs,
    -- a function may wait for an event or a signal that no client sent: the check looks whether it came
    (select count(*) from fairlead.later l where not l.waits or not exists (
        select from fairlead.job_steps s
        where s.job_id = l.job_id and s.status = 'waiting' and s.kind in ('event', 'signal') and s.due_at is null))
        as jobs_that_are_not_due,
    (select count(*) from fairlead.ended_children) as children_that_have_ended,
    (select count(*) from fairlead.workflow_runs where status = 'running') as runs,
    (select count(*) from fairlead.events_waiting) as events,
    (select count(*) from fairlead.job_triggers where is_enabled and trigger_type = 'schedule') as schedules;

-- name: find_done_schedules
select id from fairlead.job_triggers
where is_enabled and trigger_type = 'schedule' and label = any(%(labels)s)
    -- the instant itself: it may fire later, after its jitter
    and next_fire_at - next_delay > %(began)s;

-- name: ended
-- Counts what has ended. It stops growing when the queue is stuck; no client retries jobs any more.
select (select count(*) from fairlead.job_records where finished_at is not null)
    + (select count(*) from fairlead.workflow_runs where status <> 'running')
    + (select count(*) from fairlead.events where dispatched_at is not null);
