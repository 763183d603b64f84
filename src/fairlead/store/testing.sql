-- Time travel for tests. A job's due time in later is also its scheduled_for, so one statement changes both.

-- name: bring_forward
-- All jobs in later fall due now, in the order of their due times; but not those that their key holds back, and not durable
-- functions that wait for something without a timeout. The sleeps and timeouts that are due with a durable function are over.
with turn as (
    select l.job_id, l.due_at + interval '1 second' as until, statement_timestamp()
        - make_interval(secs => (count(*) over () - row_number() over (order by l.due_at, l.job_id)) / 1e6) as at
    from fairlead.later l
    where not l.held and (not l.waits or exists (
        select from fairlead.job_steps s where s.job_id = l.job_id and s.status = 'waiting' and s.due_at > statement_timestamp()))
), over as (
    update fairlead.job_steps s set due_at = least(s.due_at, t.at) from turn t
    where s.job_id = t.job_id and s.status = 'waiting' and s.due_at <= t.until
), moved as (
    update fairlead.later l set due_at = least(l.due_at, t.at) from turn t where l.job_id = t.job_id
    returning l.job_id, l.due_at
)
update fairlead.job_records j set scheduled_for = m.due_at from moved m where j.id = m.job_id;

-- name: pass_time
-- As if these seconds had passed since jobs and durable functions began to wait.
with moved as (
    update fairlead.later l set due_at = l.due_at - make_interval(secs => %(seconds)s) where not l.held
    returning l.job_id, l.due_at
), steps as (
    update fairlead.job_steps s set due_at = s.due_at - make_interval(secs => %(seconds)s) where s.status = 'waiting'
), approvals as (
    update fairlead.approvals a
    set due_at = a.due_at - make_interval(secs => %(seconds)s), escalate_at = a.escalate_at - make_interval(secs => %(seconds)s)
    where a.status = 'open'
)
update fairlead.job_records j set scheduled_for = m.due_at from moved m where j.id = m.job_id;
