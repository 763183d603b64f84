-- Workers report regularly; those that stop reporting are removed.

-- name: seen
-- A tenant's workers choose their names, so their number is limited.
insert into fairlead.job_workers as w (
    worker_id, tenant_id, hostname, version, queues, last_seen_at, running_count, concurrency, metadata)
select %(worker_id)s, %(tenant_id)s::uuid, %(hostname)s, %(version)s, %(keys)s, clock_timestamp(), %(running)s, %(concurrency)s,
    %(metadata)s
where %(tenant_id)s::uuid is null or %(most)s > (
    select count(*) from (
        select from fairlead.job_workers o
        where o.tenant_id = %(tenant_id)s and o.worker_id <> %(worker_id)s limit %(most)s) others)
on conflict (worker_id) do update
set last_seen_at = clock_timestamp(), running_count = excluded.running_count, queues = excluded.queues,
    version = excluded.version, concurrency = excluded.concurrency, metadata = excluded.metadata;

-- name: page
-- By id, after the last one of the previous page. Stale: not seen for too long.
-- An HTTP worker does not report its running jobs: its leases are counted.
select w.worker_id, w.tenant_id, (select t.slug from fairlead.tenants t where t.id = w.tenant_id) as tenant, w.hostname, w.version, w.queues, w.started_at, w.last_seen_at,
    case when w.metadata ->> 'transport' = 'http'
        then (select count(*) from fairlead.leases l where l.worker_id = w.worker_id)
        else w.running_count end as running_count,
    w.concurrency, w.metadata, w.last_seen_at < clock_timestamp() - make_interval(secs => %(stale_seconds)s) as stale
from fairlead.job_workers w where w.worker_id > %(after)s order by w.worker_id limit %(limit)s;

-- name: gone
delete from fairlead.job_workers where worker_id = %(worker_id)s;

-- name: prune
delete from fairlead.job_workers where last_seen_at < clock_timestamp() - make_interval(secs => %(seconds)s);
