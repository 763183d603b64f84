-- Time travel for tests. A job that waits for its time is in later, and its due time there is also its scheduled_for:
-- both move in one statement.

-- name: bring_forward
-- Everything that waits falls due now, in the order in which it would have.
with turn as (
    select job_id, statement_timestamp()
        - make_interval(secs => (count(*) over () - row_number() over (order by due_at, job_id)) / 1e6) as at
    from fairlead.later
), moved as (
    update fairlead.later l set due_at = least(l.due_at, t.at) from turn t where l.job_id = t.job_id
    returning l.job_id, l.due_at
)
update fairlead.jobs j set scheduled_for = m.due_at from moved m where j.id = m.job_id;
