-- Attempts that delivery engines carry. A handover counts only while its lease exists: (job, attempt, token) of both.

-- name: definitions
-- What these engines deliver.
select d.id, d.key, coalesce(d.engine, 'bullmq') as engine, d.queue from fairlead.job_definitions d
where d.kind in ('delivered', 'bullmq') and coalesce(d.engine, 'bullmq') = any(%(engines)s) order by d.key;

-- name: hosts
-- The hosts that have ready jobs of these definitions: a jump from host to host in the index.
with recursive walk as (
    (select r.host_id from fairlead.ready r where r.host_id is not null order by r.host_id limit 1)
    union all
    select n.host_id from walk cross join lateral (
        select r.host_id from fairlead.ready r where r.host_id > walk.host_id order by r.host_id limit 1) n
)
select h.id, h.name from walk join fairlead.hosts h on h.id = walk.host_id
where exists (
    select from fairlead.ready r where r.host_id = h.id and r.tenant_id = h.tenant_id
        and r.definition_id = any(%(definitions)s::uuid[]))
limit %(limit)s;

-- name: add
-- In the transaction of the claim. The row of an earlier attempt may still be there.
insert into fairlead.handovers as h (job_id, attempt_no, token, engine, queue)
select o.job_id, o.attempt_no, %(token)s, %(engine)s, o.queue
from unnest(%(jobs)s::uuid[], %(attempts)s::int[], %(queues)s::text[]) as o(job_id, attempt_no, queue)
on conflict (job_id) do update
set attempt_no = excluded.attempt_no, token = excluded.token, engine = excluded.engine, queue = excluded.queue,
    handed_over_at = null, stopped_at = null;

-- name: unconfirmed
-- Attempts that the engine has not confirmed: our own, and those of a bridge that has had the time.
select h.job_id, h.attempt_no, h.token, h.queue, l.tenant_id, t.slug as tenant, d.key as definition_key, j.payload,
    coalesce(j.timeout_seconds, d.timeout_seconds) as timeout_seconds, j.max_attempts, j.correlation_id, j.parent_id,
    n.name as host, h.handed_over_at, h.stopped_at, j.cancel_requested_at is not null as is_canceled, false as is_late
from fairlead.handovers h
join fairlead.leases l on l.job_id = h.job_id and l.attempt_no = h.attempt_no and l.token = h.token
join fairlead.job_records j on j.id = h.job_id
join fairlead.job_definitions d on d.id = l.definition_id
join fairlead.tenants t on t.id = l.tenant_id
left join fairlead.hosts n on n.id = j.host_id
where h.engine = %(engine)s and h.handed_over_at is null
    and (l.worker_id = %(bridge)s or l.started_at < clock_timestamp() - make_interval(secs => %(patience)s))
order by l.started_at limit %(limit)s;

-- name: in_flight
-- Without payloads: there may be many.
select h.job_id, h.attempt_no, h.token, h.queue, l.tenant_id, t.slug as tenant, d.key as definition_key,
    coalesce(j.timeout_seconds, d.timeout_seconds) as timeout_seconds, j.max_attempts, j.correlation_id, j.parent_id,
    n.name as host, h.handed_over_at, h.stopped_at, j.cancel_requested_at is not null as is_canceled,
    h.handed_over_at + make_interval(secs => coalesce(j.timeout_seconds, d.timeout_seconds)) < clock_timestamp() as is_late
from fairlead.handovers h
join fairlead.leases l on l.job_id = h.job_id and l.attempt_no = h.attempt_no and l.token = h.token
join fairlead.job_records j on j.id = h.job_id
join fairlead.job_definitions d on d.id = l.definition_id
join fairlead.tenants t on t.id = l.tenant_id
left join fairlead.hosts n on n.id = j.host_id
where h.engine = %(engine)s and h.handed_over_at is not null and h.job_id > %(after)s
order by h.job_id limit %(limit)s;

-- name: count
select count(*) from fairlead.handovers h
join fairlead.leases l on l.job_id = h.job_id and l.attempt_no = h.attempt_no and l.token = h.token
where h.engine = %(engine)s;

-- name: confirm
update fairlead.handovers h set handed_over_at = clock_timestamp()
from unnest(%(jobs)s::uuid[], %(attempts)s::int[], %(tokens)s::uuid[]) as o(job_id, attempt_no, token)
where h.job_id = o.job_id and h.attempt_no = o.attempt_no and h.token = o.token and h.handed_over_at is null;

-- name: stop
update fairlead.handovers h set stopped_at = clock_timestamp()
from unnest(%(jobs)s::uuid[], %(attempts)s::int[], %(tokens)s::uuid[]) as o(job_id, attempt_no, token)
where h.job_id = o.job_id and h.attempt_no = o.attempt_no and h.token = o.token and h.stopped_at is null;

-- name: renew
-- The leases of all handovers of these engines that no bridge has renewed recently. It never waits: a lease that is locked
-- is ending, or is renewed the next time.
update fairlead.leases set expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
where ctid = any(array(
    select l.ctid from fairlead.handovers h
    join fairlead.leases l on l.job_id = h.job_id and l.attempt_no = h.attempt_no and l.token = h.token
    where h.engine = any(%(engines)s)
        and l.expires_at < clock_timestamp() + make_interval(secs => %(lease_seconds)s * 0.8)
    for no key update of l skip locked));

-- name: owners
-- The leases of these attempts, and what decides about their outcomes. An attempt counts if this engine carries it, in this
-- queue, and the report has the lease's token or the secret that model/delivery.py makes of it.
select o.at, l.token, l.tenant_id, l.host_id, d.key as definition_key, l.worker_id, j.max_attempts, j.failure_count,
    j.lost_count, d.backoff, d.secret_paths || coalesce(j.secret_paths, '{}') as secret_paths,
    case when d.secret_paths <> '{}' or j.secret_paths is not null then j.payload end as payload
from unnest(%(jobs)s::uuid[], %(attempts)s::int[], %(tokens)s::uuid[], %(secrets)s::text[], %(queues)s::text[])
    with ordinality as o(job_id, attempt_no, token, secret, queue, at)
join fairlead.handovers h on h.job_id = o.job_id and h.attempt_no = o.attempt_no and h.engine = %(engine)s
    and h.queue = coalesce(o.queue, h.queue)
    and (h.token = o.token or left(encode(sha256(uuid_send(h.token)), 'hex'), %(digits)s) = o.secret)
join fairlead.leases l on l.job_id = h.job_id and l.attempt_no = h.attempt_no and l.token = h.token
join fairlead.job_records j on j.id = l.job_id
join fairlead.job_definitions d on d.id = l.definition_id;

-- name: forget
-- Handovers whose attempts have ended. Without the token: that of a lease changes while its tenant is moved.
delete from fairlead.handovers h where h.ctid = any(array(
    select h.ctid from fairlead.handovers h where h.engine = any(%(engines)s) and not exists (
        select from fairlead.leases l
        where l.job_id = h.job_id and l.attempt_no = h.attempt_no)
    limit %(limit)s for update skip locked));
