-- name: creation_unaudited
-- A job was created without an entry. Jobs of bulk loads and of workflow runs share entries, which are counted.
-- work: fairlead.job_records
with single as (
    select j.tenant_id, count(*) filter (where exists (
        select from pg_temp.entries e where e.job_id = j.id and e.meaning = 'created')) as single,
        count(*) as jobs
    from fairlead.job_records j group by j.tenant_id
), shared as (
    select a.tenant_id, sum((a.details ->> 'count')::bigint) as jobs from fairlead.audit_log a
    where a.action = 'jobs_created' group by a.tenant_id
), removed as (
    select r.tenant_id, sum(r.jobs) as jobs from fairlead.removed_jobs r group by r.tenant_id
)
select t.slug, 'expected entries for ' || s.jobs || ' jobs, found ' || s.single || ' entries of single jobs and '
    || coalesce(h.jobs, 0) || ' jobs in shared entries'
from single s join fairlead.tenants t on t.id = s.tenant_id
left join shared h on h.tenant_id = s.tenant_id left join removed r on r.tenant_id = s.tenant_id
where s.single + coalesce(h.jobs, 0) <> s.jobs and r.jobs is null;

-- name: creation_audited_twice
-- A job has several entries of its creation.
-- work: pg_temp.entries where meaning = 'created'
select e.job_id, 'expected one entry of its creation, found ' || count(*)
from pg_temp.entries e where e.meaning = 'created' group by e.job_id having count(*) > 1;

-- name: end_unaudited
-- A job ended, and its last entry does not say so.
-- work: fairlead.job_records where status > 'running'
select j.id, 'is ' || j.status || ', but the last entry of an end or a retry says '
    || coalesce(last.meaning || ' (attempt ' || coalesce(last.attempt_no::text, 'none') || ')', 'nothing')
from fairlead.job_records j
join fairlead.job_definitions d on d.id = j.definition_id
left join (
    select distinct on (e.job_id) e.job_id, e.meaning, e.attempt_no from pg_temp.entries e
    where e.meaning in ('succeeded', 'failed', 'dead_letter', 'canceled', 'retried')
    order by e.job_id, e.place desc) last on last.job_id = j.id
where j.status > 'running' and (j.status <> 'succeeded' or d.audit_action is not null)
    and (last.meaning is distinct from j.status::text
        or last.attempt_no <> j.attempt_count);

-- name: audit_order
-- The entries of a job are in an impossible order.
-- work: pg_temp.entries where meaning in ('created', 'retried')
select f.job_id, 'the entry ' || f.meaning || ' follows ' || coalesce(f.before, 'nothing') || ' at ' || f.at
from (
    select e.job_id, e.meaning, e.at, e.place, lag(e.meaning) over (partition by e.job_id order by e.place) as before
    from pg_temp.entries e where e.meaning in ('created', 'succeeded', 'failed', 'dead_letter', 'canceled', 'retried')) f
where f.meaning = 'created' and f.before is not null
    or f.meaning = 'retried' and coalesce(f.before, '') not in ('failed', 'dead_letter', 'canceled');

-- name: cancel_unaudited
-- A job's cancel was requested without an entry.
-- work: fairlead.job_records where cancel_requested_at is not null and workflow_run_id is null
select j.id, 'a cancel was requested at ' || j.cancel_requested_at || ', but no entry says so'
from fairlead.job_records j
where j.cancel_requested_at is not null and j.workflow_run_id is null and not exists (
    select from pg_temp.entries e where e.job_id = j.id and e.meaning in ('asked', 'canceled'));

-- name: event_unaudited
-- An event was emitted without an entry.
-- work: fairlead.events where name !~ '^(job|workflow|usage)\.'
select e.id, 'expected one entry event_emitted, found none' from fairlead.events e
where e.name !~ '^(job|workflow|usage)\.' and not exists (
    select from fairlead.audit_log a
    where a.action in ('event_emitted', 'event_replayed') and a.resource_type = 'event' and a.resource_id = e.id::text);

-- name: run_unaudited
-- A workflow run ended without exactly one entry of its end.
-- work: fairlead.workflow_runs where status <> 'running'
select r.id, 'is ' || r.status || '; expected one entry of that, found ' || count(a.at)
from fairlead.workflow_runs r
left join fairlead.audit_log a on a.resource_type = 'workflow_run' and a.resource_id = r.id::text
    and a.action = 'WORKFLOW_RUN_' || upper(r.status)
where r.status <> 'running' group by r.id, r.status having count(a.at) <> 1;

-- name: audit_unprotected
-- A table of the audit log lacks a trigger that refuses changes, or the trigger is disabled.
-- work: pg_catalog.pg_inherits where inhparent = 'fairlead.audit_log'::regclass
with part as (
    select 'fairlead.audit_log'::regclass as id
    union all
    select i.inhrelid from pg_catalog.pg_inherits i where i.inhparent = 'fairlead.audit_log'::regclass
)
select p.id::regclass::text, 'expected the enabled trigger ' || wanted.name || ', found '
    || coalesce('one that is disabled', 'none')
from part p cross join (values ('audit_rows_stay'), ('audit_stays')) as wanted(name)
where not exists (
    select from pg_catalog.pg_trigger g
    where g.tgrelid = p.id and g.tgname = wanted.name and g.tgenabled in ('O', 'A'));
