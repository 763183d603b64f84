-- Time travel for tests. A job's due time in later is also its scheduled_for, so one statement changes both.

-- name: bring_forward
-- All jobs in later fall due now, in the order of their due times; but not those that their key holds back.
with turn as (
    select job_id, statement_timestamp()
        - make_interval(secs => (count(*) over () - row_number() over (order by due_at, job_id)) / 1e6) as at
    from fairlead.later where not held
), moved as (
    update fairlead.later l set due_at = least(l.due_at, t.at) from turn t where l.job_id = t.job_id
    returning l.job_id, l.due_at
)
update fairlead.job_records j set scheduled_for = m.due_at from moved m where j.id = m.job_id;
