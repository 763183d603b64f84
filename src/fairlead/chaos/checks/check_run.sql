-- name: drained
-- When the drain began, by the database's clock.
select to_timestamp(min(p.at) + %(offset)s) from pg_temp.phases p where p.name = 'drain';

-- name: duration
-- Seconds under load: until the drain began, or to the last record of a phase.
select coalesce(
    coalesce((select min(p.at) from pg_temp.phases p where p.name = 'drain'), (select max(p.at) from pg_temp.phases p))
        - (select min(p.at) from pg_temp.phases p), 0)::float8;

-- name: faults
select f.kind, count(distinct f.place) from pg_temp.faults f group by f.kind order by f.kind;

-- name: counts
select 'jobs', count(*) from fairlead.job_records
union all select 'jobs ' || j.status::text, count(*) from fairlead.jobs j group by j.status
union all select 'attempts', count(*) from pg_temp.tries
union all select 'attempts ' || t.status, count(*) from pg_temp.tries t group by t.status
union all select 'attempts lost (a fault hit the worker)', count(*) from pg_temp.explained_losses
union all select 'events', count(*) from fairlead.events
union all select 'firings ' || f.outcome || coalesce(' (' || f.reason || ')', ''), count(*)
    from fairlead.trigger_firings f group by f.outcome, f.reason
union all select 'workflow runs', count(*) from fairlead.workflow_runs
union all select 'steps recorded', count(*) from fairlead.job_steps
union all select 'steps run', count(*) from pg_temp.step_runs
union all select 'functions that wait for what never came', count(*) from fairlead.later l where l.waits
union all select 'secrets that attempts got', count(*) from pg_temp.secrets
union all select 'data keys retired', count(*) from fairlead.tenant_keys k where k.retired_at is not null
union all select 'audit entries', count(*) from fairlead.audit_entries
union all select 'calls', count(*) from pg_temp.calls
union all select 'calls ' || c.kind || ' ' || c.outcome, count(*) from pg_temp.calls c
    where c.kind <> 'attack' group by c.kind, c.outcome
union all select 'attacks refused', count(*) from pg_temp.calls c where c.kind = 'attack' and c.outcome = 'fail'
union all select 'handler starts', count(*) from pg_temp.starts
union all select 'samples of limits', count(*) from (select distinct s.at from pg_temp.samples s) s
union all select 'processes started', count(*) from pg_temp.process_starts
union all select 'records', (select count(*) from pg_temp.call_records) + (select count(*) from pg_temp.answer_records)
    + (select count(*) from pg_temp.starts) + (select count(*) from pg_temp.ends);

-- name: condemned
-- Dead letters whose charged losses are all explained by faults that hit the worker while it ran the job alone.
select count(*) from fairlead.job_records j
join fairlead.job_definitions d on d.id = j.definition_id
where j.status = 'dead_letter' and d.key <> %(poison)s and j.failure_count < j.max_attempts
    and exists (select from pg_temp.definition_plans n where n.key = d.key)
    and (select count(*) from pg_temp.explained_losses e where e.job_id = j.id) >= 3;
