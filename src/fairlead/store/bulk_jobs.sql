-- As in jobs.sql, the transaction that deletes the hot row owns the transition. Bulk statements never wait: they skip
-- rows that another transaction has locked, so two of these, a claim and a finish cannot deadlock.

-- name: cancelable_of_queue
-- Unordered: it stops as soon as it has enough.
with hot as (
    select r.job_id from fairlead.ready r where %(tenant_id)s::uuid is null or r.tenant_id = %(tenant_id)s
    union all
    select l.job_id from fairlead.later l where %(tenant_id)s::uuid is null or l.tenant_id = %(tenant_id)s
    union all
    select s.job_id from fairlead.leases s where %(tenant_id)s::uuid is null or s.tenant_id = %(tenant_id)s
)
select j.id from hot
cross join lateral (select j.* from fairlead.jobs j where j.id = hot.job_id offset 0) j
join fairlead.job_definitions d on d.id = j.definition_id
where j.cancel_requested_at is null

-- name: cancelable_of_record
select j.id from fairlead.jobs j join fairlead.job_definitions d on d.id = j.definition_id
where j.status <= 'running' and j.cancel_requested_at is null

-- name: where_allowed
d.key <> %(forbidden)s

-- name: retryable
-- Steps of runs are retried with their runs. A stuck job cannot be retried: its key is held, its host was removed, or the
-- principal may not retry its definition.
select j.id, j.tenant_id, sha256(convert_to(j.dedupe_key, 'UTF8')) as key_hash,
    case when j.dedupe_key is not null and (
            select k.job_id from fairlead.active_keys k
            where k.tenant_id = j.tenant_id and k.key_hash = sha256(convert_to(j.dedupe_key, 'UTF8'))
                and k.job_id <> j.id limit 1) is not null
            then 'dedupe_key_taken'
        when j.host_id is not null and (select h.id from fairlead.hosts h where h.id = j.host_id limit 1) is null
            then 'host_removed'
        when d.key = %(forbidden)s::text then 'not_permitted' end as stuck
from fairlead.jobs j join fairlead.job_definitions d on d.id = j.definition_id
where j.troubled and d.is_active and j.workflow_run_id is null

-- name: look_at_retryable
-- A cursor over all of them, read only as far as needed.
declare retryable no scroll cursor for

-- name: next_retryable
fetch 1000 from retryable;

-- name: end_of_retryable
close retryable;

-- name: retryable_chosen
-- Chosen jobs, each with the reason why it cannot be retried, if there is one.
select j.id, case when not j.troubled then 'not_failed'
    when j.workflow_run_id is not null then 'workflow_step'
    when not d.is_active then 'definition_inactive'
    when d.key = %(forbidden)s::text then 'not_permitted'
    when j.host_id is not null and not exists (select from fairlead.hosts h where h.id = j.host_id) then 'host_removed'
    when j.dedupe_key is not null and exists (
        select from fairlead.active_keys k
        where k.tenant_id = j.tenant_id and k.key_hash = sha256(convert_to(j.dedupe_key, 'UTF8'))
            and k.job_id <> j.id) then 'dedupe_key_taken'
    end as stuck
from fairlead.jobs j join fairlead.job_definitions d on d.id = j.definition_id
where j.id = any(%(ids)s) and (%(tenant_id)s::uuid is null or j.tenant_id = %(tenant_id)s);

-- name: cancelable_chosen
-- Chosen jobs, each with the reason why it cannot be canceled, if there is one.
select j.id, case when j.status > 'running' or j.cancel_requested_at is not null then 'ended'
    when d.key = %(forbidden)s::text then 'not_permitted'
    end as stuck
from fairlead.jobs j join fairlead.job_definitions d on d.id = j.definition_id
where j.id = any(%(ids)s) and (%(tenant_id)s::uuid is null or j.tenant_id = %(tenant_id)s);

-- name: never_retryable
-- Those that `retryable` leaves out, among the first jobs that it would read.
select x.reason, count(*) from (
select case when j.workflow_run_id is not null then 'workflow_step' when not d.is_active then 'definition_inactive' end as reason
from fairlead.jobs j join fairlead.job_definitions d on d.id = j.definition_id
where j.troubled

-- name: still_cancelable
select j.id from fairlead.jobs j
where j.id = any(%(ids)s) and j.status <= 'running' and j.cancel_requested_at is null
    and not j.tenant_id = any(array(select t.id from fairlead.tenants t where t.placement <> 'here'));

-- name: cancel_queued
with wanted as materialized (
    -- a row for each time that ready may have: see cancel_queued in jobs.sql
    select j.id, j.tenant_id, j.definition_id, j.host_id, j.priority, j.scheduled_for, due.at as ready_at
    from fairlead.job_records j
    cross join lateral (select distinct unnest(array[j.scheduled_for, greatest(j.scheduled_for, j.queued_at)]) as at) due
    where j.id = any(%(ids)s) and j.status = 'queued'
        -- a tenant that is being moved cannot be changed
        and not j.tenant_id = any(array(select t.id from fairlead.tenants t where t.placement <> 'here'))
), of_tenant as materialized (
    select r.spot from wanted w cross join lateral (
        select r.ctid as spot from fairlead.ready r
        where w.host_id is null and r.host_id is null and r.tenant_id = w.tenant_id
            and r.definition_id = w.definition_id and r.priority = w.priority
            and r.scheduled_for = w.ready_at and r.job_id = w.id
        limit 1 for update skip locked) r
), of_host as materialized (
    select r.spot from wanted w cross join lateral (
        select r.ctid as spot from fairlead.ready r
        where r.host_id = w.host_id and r.tenant_id = w.tenant_id
            and r.definition_id = w.definition_id and r.priority = w.priority
            and r.scheduled_for = w.ready_at and r.job_id = w.id
        limit 1 for update skip locked) r
), not_due as materialized (
    select l.spot from wanted w cross join lateral (
        select l.ctid as spot from fairlead.later l where l.due_at = w.scheduled_for and l.job_id = w.id
        limit 1 for update skip locked) l
), from_ready as (
    delete from fairlead.ready
    where ctid = any(array(select spot from of_tenant union all select spot from of_host))
    returning job_id
), from_later as (
    delete from fairlead.later where ctid = any(array(select spot from not_due)) returning job_id
), ended as (
    update fairlead.job_records j
    set status = 'canceled', troubled = true, finished_at = clock_timestamp(),
        cancel_requested_at = coalesce(j.cancel_requested_at, clock_timestamp())
    where j.id = any(array(select job_id from from_ready union all select job_id from from_later))
    returning j.id, j.tenant_id, j.definition_id, j.dedupe_key, j.limit_key
), freed as (
    delete from fairlead.active_keys where ctid = any(array(
        select held.spot from ended e cross join lateral (
            select k.ctid as spot from fairlead.active_keys k
            where k.tenant_id = e.tenant_id and k.key_hash = sha256(convert_to(e.dedupe_key, 'UTF8'))
                and k.job_id = e.id and coalesce(k.unique_until <= clock_timestamp(), true)
            limit 1) held
        where e.dedupe_key is not null))
), counted as (
    insert into fairlead.counts (tenant_id, definition_id, minute, queued, canceled)
    select tenant_id, definition_id, date_trunc('minute', clock_timestamp()), -count(*), count(*)
    from ended group by tenant_id, definition_id
)
select array_agg(id), case when count(limit_key) > 0
    then fairlead.release_keys(array_agg(definition_id), array_agg(tenant_id), array_agg(limit_key)) end
from ended;

-- name: request_cancel
-- A lease that is locked here cannot end before this transaction, so its job runs. Heartbeats continue.
with held as materialized (
    select l.job_id from unnest(%(ids)s::uuid[]) as wanted(id) cross join lateral (
        select l.job_id from fairlead.leases l where l.job_id = wanted.id limit 1 for key share skip locked) l
), free as materialized (
    select j.id from held h cross join lateral (
        -- a job with a cancel request gets no second one, and is not counted again
        select j.id from fairlead.job_records j
        where j.id = h.job_id and j.cancel_requested_at is null
            and not j.tenant_id = any(array(select t.id from fairlead.tenants t where t.placement <> 'here'))
        limit 1 for update skip locked) j
)
update fairlead.job_records set cancel_requested_at = clock_timestamp()
where id = any(array(select id from free))
returning id;

-- name: hold_terminal
-- A terminal job has no hot row, so retries lock its record. A job whose host was removed is left out, and hosts of
-- the others cannot be removed meanwhile.
with host as materialized (
    select h.id from fairlead.hosts h
    where h.id = any(array(select distinct j.host_id from fairlead.jobs j where j.id = any(%(ids)s))) for key share
)
select j.id, j.tenant_id, j.dedupe_key from fairlead.job_records j
where j.id = any(%(ids)s) and j.status in ('failed', 'dead_letter', 'canceled')
    and (j.host_id is null or j.host_id in (select h.id from host h))
    and not j.tenant_id = any(array(select t.id from fairlead.tenants t where t.placement <> 'here'))
for update of j skip locked;

-- name: requeue
-- For locked jobs. A fresh retry budget; attempt numbers continue.
with was as materialized (
    select j.id, j.status from fairlead.job_records j where j.id = any(%(ids)s)
), job as (
    update fairlead.job_records j
    set status = 'queued', troubled = false, finished_at = null, cancel_requested_at = null,
        claimed_by_worker = null, failure_count = 0, lost_count = 0, suspected = 0, accused = false,
        output = null, error = null, progress = null,
        scheduled_for = clock_timestamp(), expires_at = null
    from was where j.id = was.id
    returning j.id, j.tenant_id, j.definition_id, j.host_id, j.priority, j.scheduled_for, j.limit_key,
        was.status as was
), ready_again as (
    insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
    select id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key from job
), left_groups as (
    delete from fairlead.error_group_jobs where job_id = any(%(ids)s)
    returning group_id, tenant_id, status
), group_changes as (
    insert into fairlead.error_group_changes (group_id, tenant_id, failed, dead_letter)
    select group_id, tenant_id, -count(*) filter (where status = 'failed'), -count(*) filter (where status = 'dead_letter')
    from left_groups group by group_id, tenant_id
), counted as (
    -- in a minute that no chart shows any more: see requeue in jobs.sql
    insert into fairlead.counts (tenant_id, definition_id, minute, queued, failed, dead_letter, canceled)
    select tenant_id, definition_id, date_trunc('minute', clock_timestamp()) - interval '26 hours', count(*),
        -count(*) filter (where was = 'failed'), -count(*) filter (where was = 'dead_letter'),
        -count(*) filter (where was = 'canceled')
    from job group by tenant_id, definition_id
)
select count(*) from job;
