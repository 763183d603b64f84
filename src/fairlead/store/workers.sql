-- Workers report regularly; those that stop reporting are removed.

-- name: seen
-- A tenant's workers choose their names, so their number is limited, and a claim alone adds none. A worker whose row was
-- removed while it drained says so.
insert into fairlead.job_workers as w (
    worker_id, tenant_id, hostname, version, queues, last_seen_at, running_count, concurrency, labels, metadata,
    drain_requested_at)
select %(worker_id)s, %(tenant_id)s::uuid, %(hostname)s, %(version)s, %(keys)s, clock_timestamp(), %(running)s, %(concurrency)s,
    %(labels)s, %(metadata)s, case when %(draining)s then clock_timestamp() end
where %(tenant_id)s::uuid is null or exists (select from fairlead.job_workers k where k.worker_id = %(worker_id)s)
    or (%(may_add)s and %(most)s > (
        select count(*) from (select from fairlead.job_workers o where o.tenant_id = %(tenant_id)s limit %(most)s) others))
on conflict (worker_id) do update
set last_seen_at = clock_timestamp(), running_count = excluded.running_count, queues = excluded.queues,
    version = excluded.version, concurrency = excluded.concurrency, labels = excluded.labels, metadata = excluded.metadata
returning drain_requested_at is not null;

-- name: page
-- By id, after the last one of the previous page. Stale: not seen for too long.
-- An HTTP worker does not report its running jobs: its leases are counted.
select w.worker_id, w.tenant_id, (select t.slug from fairlead.tenants t where t.id = w.tenant_id) as tenant, w.hostname, w.version, w.queues, w.started_at, w.last_seen_at,
    case when w.metadata ->> 'transport' = 'http'
        then (select count(*) from fairlead.leases l where l.worker_id = w.worker_id)
        else w.running_count end as running_count,
    w.concurrency, w.labels, w.metadata, w.drain_requested_at, w.drain_requested_by, w.last_seen_at < clock_timestamp() - make_interval(secs => %(stale_seconds)s) as stale
from fairlead.job_workers w where w.worker_id > %(after)s order by w.worker_id limit %(limit)s;

-- name: find
select w.worker_id, w.tenant_id, (select t.slug from fairlead.tenants t where t.id = w.tenant_id) as tenant, w.hostname, w.version, w.queues, w.started_at, w.last_seen_at,
    (select count(*) from fairlead.leases l where l.worker_id = w.worker_id) as running_count, w.concurrency, w.labels, w.metadata,
    w.drain_requested_at, w.drain_requested_by,
    w.last_seen_at < clock_timestamp() - make_interval(secs => %(stale_seconds)s) as stale
from fairlead.job_workers w where w.worker_id = %(worker_id)s;

-- name: jobs
-- The jobs that a worker runs, the longest running first. There are no more leases than running jobs.
select l.job_id, l.attempt_no, d.key as definition_key, t.slug as tenant, l.worker_id, l.started_at
from fairlead.leases l
join fairlead.tenants t on t.id = l.tenant_id
join fairlead.job_definitions d on d.id = l.definition_id
where l.worker_id = %(worker_id)s
order by l.started_at, l.job_id limit %(limit)s;

-- name: lost
-- The leases that a worker lost lately: until when, and which job was charged.
select expired_at, blamed, charged_job, charged_attempt from fairlead.lost_workers where worker_id = %(worker_id)s;

-- name: drain
-- Keeps the time and the name of the first request.
update fairlead.job_workers
set drain_requested_by = case when drain_requested_at is null then %(actor)s else drain_requested_by end,
    drain_requested_at = coalesce(drain_requested_at, clock_timestamp())
where worker_id = %(worker_id)s returning true;

-- name: resume
update fairlead.job_workers set drain_requested_at = null, drain_requested_by = null
where worker_id = %(worker_id)s returning true;

-- name: gone
delete from fairlead.job_workers where worker_id = %(worker_id)s;

-- name: prune
delete from fairlead.job_workers where last_seen_at < clock_timestamp() - make_interval(secs => %(seconds)s);
