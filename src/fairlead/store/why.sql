-- The facts behind "why is this job not running?". Everything is looked up by key or counted up to a bound: no cost
-- grows with the number of jobs.

-- name: standing
-- The time `infinity` means that the job waits for other jobs; Python cannot read it.
select clock_timestamp() as now, j.id as job_id, j.tenant_id, t.slug as tenant, d.key as definition_key, j.host_id,
    h.name as host, h.last_seen_at as host_seen_at, coalesce(h.draining, false) as host_draining, j.status,
    j.attempt_count, j.failure_count, j.max_attempts, j.last_error, j.started_at, j.finished_at, j.cancel_requested_at, j.claimed_by_worker,
    j.lease_expires_at, a.status as last_attempt_status, nullif(w.due_at, 'infinity') as due_at,
    case when j.attempt_count = 0 then j.expires_at end as expires_at,
    coalesce(w.due_at = 'infinity', false) as waits_for_jobs, coalesce(w.alone, false) as alone, j.accused, j.suspected,
    j.lost_count, case when d.kind in ('delivered', 'bullmq') then coalesce(d.engine, 'bullmq') end as engine,
    d.slots, d.requires, d.prefers, fairlead.label_texts(h.labels) as host_labels,
    greatest(nullif(j.scheduled_for, 'infinity'), j.queued_at) as waits_since, coalesce(w.waits, false) as is_suspended
from fairlead.jobs j
join fairlead.tenants t on t.id = j.tenant_id
join fairlead.job_definitions d on d.id = j.definition_id
left join fairlead.hosts h on h.id = j.host_id
left join fairlead.attempts a on a.job_id = j.id and a.attempt_no = j.attempt_count
left join lateral (
    select due_at, alone, waits from fairlead.later
    where due_at = any(array[j.scheduled_for, 'infinity'::timestamptz]) and job_id = j.id limit 1) w on true
where j.id = %(id)s and (%(tenant_id)s::uuid is null or j.tenant_id = %(tenant_id)s);

-- name: waits
-- What a durable function waits for; what ends first comes first. Sleeps, and pauses before a step's next try, stay 'waiting'
-- when they are over.
select case when s.branch = '' then '' else s.branch || ':' end || (s.position + 1) as place, s.kind, s.name, s.tries,
    coalesce(s.ended_at, s.started_at) as since, s.due_at as until, s.request, s.error, s.child_id,
    c.status as child_status, s.count
from (
    select s.*, count(*) over () as count from fairlead.job_steps s
    where s.job_id = %(id)s and s.status = 'waiting'
        and (s.kind not in ('sleep', 'step') or s.due_at > clock_timestamp())
    order by s.due_at nulls last, s.started_at, s.branch, s.position limit %(limit)s) s
left join lateral (
    select j.status::text as status from fairlead.job_records j where j.id = s.child_id limit 1) c on true
order by s.due_at nulls last, s.started_at, s.branch, s.position;

-- name: gates
-- The closed gates in the job's way, widest first.
select gate.scope, gate.name, gate.paused_at, gate.paused_by, gate.note
from fairlead.jobs j cross join lateral (
    select 1 as n, 'system' as scope, 'system' as name, s.changed_at as paused_at, s.changed_by as paused_by, s.note
    from fairlead.system s where not s.online
    union all
    select 2, 'tenant', t.slug, t.paused_at, t.paused_by, t.pause_note
    from fairlead.tenants t where t.id = j.tenant_id and t.paused_at is not null
    union all
    select 3, 'definition', d.key, d.paused_at, d.paused_by, d.pause_note
    from fairlead.job_definitions d where d.id = j.definition_id and d.paused_at is not null
    union all
    select 4, 'host', h.name, h.paused_at, h.paused_by, h.pause_note
    from fairlead.hosts h where h.id = j.host_id and h.paused_at is not null
) gate
where j.id = %(id)s order by gate.n;

-- name: limits
-- The limits that apply to the job. All leases are counted; only those of its own tenant are named.
select bound.scope, bound.most,
    case bound.scope
        when 'tenant' then (select count(*) from fairlead.leases l where l.tenant_id = j.tenant_id)
        when 'definition' then (select count(*) from fairlead.leases l where l.definition_id = j.definition_id)
        when 'definition_tenant' then (
            select count(*) from fairlead.leases l
            where l.definition_id = j.definition_id and l.tenant_id = j.tenant_id)
        else (select count(*) from fairlead.leases l where l.host_id = j.host_id)
    end as running,
    array(
        select l.job_id from fairlead.leases l
        where l.tenant_id = j.tenant_id
            and (bound.scope not in ('definition', 'definition_tenant') or l.definition_id = j.definition_id)
            and (bound.scope <> 'host' or l.host_id = j.host_id)
        order by l.started_at, l.job_id limit %(holders)s) as holders
from fairlead.jobs j
join fairlead.tenants t on t.id = j.tenant_id
join fairlead.job_definitions d on d.id = j.definition_id
left join fairlead.hosts h on h.id = j.host_id
cross join lateral (values
    (1, 'tenant', t.max_running), (2, 'definition', fairlead.definition_limit(d.id, d.max_running)),
    (3, 'definition_tenant', d.max_running_per_tenant), (4, 'host', h.max_running)) as bound(n, scope, most)
where j.id = %(id)s and bound.most is not null
order by bound.n;

-- name: rates
-- The rates that apply to the job, widest first, and when each allows the next start.
select r.scope, r.rate, r.opens_at
from fairlead.jobs j cross join lateral fairlead.rates_of(j.tenant_id, j.definition_id) r
where j.id = %(id)s order by r.n;

-- name: key_limit
-- The limits of the job's key, if it has one: the running jobs of the key, when its rate allows the next start, and, in
-- strict order, the oldest job of the key that waits before it.
select d.by_key, (
        select count(*) from fairlead.leases l
        where l.definition_id = j.definition_id and l.tenant_id = j.tenant_id and l.limit_key = j.limit_key) as running,
    array(
        select l.job_id from fairlead.leases l
        where l.definition_id = j.definition_id and l.tenant_id = j.tenant_id and l.limit_key = j.limit_key
        order by l.started_at, l.job_id limit %(holders)s) as holders, (
        select case when fairlead.tokens_in(b.tokens, b.counted_at, d.by_key -> 'rate', clock_timestamp()) < 1
            then fairlead.next_token_at(b.tokens, b.counted_at, d.by_key -> 'rate', 1) end
        from fairlead.rate_buckets b
        where b.definition_id = j.definition_id and b.tenant_id = j.tenant_id and b.limit_key = j.limit_key
            and jsonb_typeof(d.by_key -> 'rate') = 'object') as opens_at,
    case when (d.by_key -> 'fifo')::boolean then (
        select o.job_id from (
            (select l.job_id from fairlead.later l
             where l.definition_id = j.definition_id and l.tenant_id = j.tenant_id and l.limit_key = j.limit_key
             order by l.definition_id, l.tenant_id, l.limit_key, l.job_id limit 1)
            union all
            (select r.job_id from fairlead.ready r
             where r.definition_id = j.definition_id and r.tenant_id = j.tenant_id and r.limit_key = j.limit_key
             order by r.definition_id, r.tenant_id, r.limit_key, r.job_id limit 1)) o
        where o.job_id < j.id order by o.job_id limit 1) end as older
from fairlead.job_records j join fairlead.job_definitions d on d.id = j.definition_id
where j.id = %(id)s and j.limit_key is not null and d.by_key is not null;

-- name: workers
-- For each pair of a definition and a tenant, in the order given: how many workers are alive, and how many of them serve it.
-- A tenant's worker serves only that tenant. No queues: it serves every definition. `definition tenant`: only for that tenant.
-- Also how many of these have the labels that it requires, the most slots of one of those, and how many of them have the
-- labels that it prefers. A worker that drains serves nothing. Workers that serve the same are counted once: a fleet of a thousand has few kinds.
with fleets as materialized (
    select w.tenant_id, w.queues, w.drain_requested_at is not null as draining, w.labels,
        -- a worker over HTTP that does not count slots takes every job as one
        case when w.metadata @> '{"transport": "http"}' and not w.metadata ? 'slots' then 10000 else w.concurrency end as slots,
        count(*) filter (
            where w.last_seen_at > clock_timestamp() - make_interval(secs => %(seconds)s)) as alive,
        max(w.last_seen_at) as last_seen_at
    from fairlead.job_workers w group by 1, 2, 3, 4, 5
), serving as (
    select pair.n, f.alive, f.last_seen_at, f.labels, f.slots, d.slots as needed, d.requires, d.prefers,
        f.alive > 0 and not f.draining and (f.queues = '{}' or f.queues && array[
            pair.definition_key, pair.definition_key || ' ' || pair.tenant_id]) as serves,
        coalesce(d.requires, '{}') <@ f.labels as has_labels
    from unnest(%(definitions)s::text[], %(tenants)s::text[]) with ordinality as pair(definition_key, tenant_id, n)
    left join fairlead.job_definitions d on d.key = pair.definition_key
    left join fleets f on f.tenant_id is null or f.tenant_id = pair.tenant_id::uuid
)
select coalesce(sum(s.alive), 0)::bigint as alive,
    coalesce(sum(s.alive) filter (where s.serves), 0)::bigint as serving,
    max(s.last_seen_at) as last_seen_at,
    coalesce(sum(s.alive) filter (where s.serves and s.has_labels), 0)::bigint as with_labels,
    coalesce(max(s.slots) filter (where s.serves and s.has_labels), 0) as most_slots,
    coalesce(sum(s.alive) filter (
        where s.serves and s.has_labels and s.slots >= s.needed and s.prefers <@ s.labels), 0)::bigint as preferred
from serving s group by s.n order by s.n;

-- name: serving
-- The live workers that serve a definition for some tenant, by the same rule as above.
select w.worker_id, w.hostname, t.slug as tenant, w.running_count, w.concurrency, w.labels, w.last_seen_at
from fairlead.job_workers w left join fairlead.tenants t on t.id = w.tenant_id
where w.last_seen_at > clock_timestamp() - make_interval(secs => %(seconds)s)
    and w.drain_requested_at is null
    and (w.queues = '{}' or exists (
        select from unnest(w.queues) as q(name)
        where q.name = %(definition_key)s or starts_with(q.name, %(definition_key)s || ' ')))
order by w.worker_id limit %(limit)s;

-- name: ahead
-- Jobs that are claimed before this one, in its tenant or on its host, counted up to a bound, by definition, as the index
-- has them. Other definitions that are paused or at their limit do not count.
with recursive job as (
    select id, tenant_id, definition_id, host_id, priority, greatest(scheduled_for, queued_at) as scheduled_for
    from fairlead.jobs where id = %(id)s
), kinds as (
    select '00000000-0000-0000-0000-000000000000'::uuid as definition_id
    union all
    select hop.definition_id from kinds k cross join job j cross join lateral (
        (select r.definition_id from fairlead.ready r
         where j.host_id is null and r.host_id is null and r.tenant_id = j.tenant_id
            and r.definition_id > k.definition_id
         order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1)
        union all
        (select r.definition_id from fairlead.ready r
         where r.host_id = j.host_id and r.tenant_id = j.tenant_id and r.definition_id > k.definition_id
         order by r.host_id, r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1)) hop
), claimed as (
    select d.id as definition_id from kinds k cross join job j cross join lateral (
        select d.id, d.paused_at, d.max_running, d.max_running_per_tenant, d.rate, d.rate_per_tenant
        from fairlead.job_definitions d where d.id = k.definition_id limit 1) d
    where d.id = j.definition_id or (d.paused_at is null and fairlead.closed_until(
        j.tenant_id, null, null, d.id, d.max_running, d.rate, d.max_running_per_tenant, d.rate_per_tenant,
        clock_timestamp()) is null)
), found as (
    select from job j cross join claimed c cross join lateral (
        (select from fairlead.ready r
         where j.host_id is null and r.host_id is null and r.tenant_id = j.tenant_id
            and r.definition_id = c.definition_id
            and (r.priority, r.scheduled_for, r.job_id) < (j.priority, j.scheduled_for, j.id)
         order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit %(bound)s)
        union all
        (select from fairlead.ready r
         where r.host_id = j.host_id and r.tenant_id = j.tenant_id and r.definition_id = c.definition_id
            and (r.priority, r.scheduled_for, r.job_id) < (j.priority, j.scheduled_for, j.id)
         order by r.host_id, r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id
         limit %(bound)s)) before
)
select count(*) from (select from found limit %(bound)s) counted;
