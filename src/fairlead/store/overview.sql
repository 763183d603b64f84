-- The facts of the overview. Nothing here counts or searches jobs: levels are in count_levels and the counts not yet folded
-- into it, the oldest ready job of a tenant and definition is the head of an index, running jobs are in leases. Everything
-- else is a short list with a bound.

-- name: backlogs
-- The pairs of tenant and definition with the most queued jobs, as far as a job of theirs may run now. The loose index scan
-- reads one ready job for each priority; a bound, in case every job has a different one.
with levels as materialized (
    select c.tenant_id, c.definition_id, sum(c.queued)::bigint as queued
    from (
        select tenant_id, definition_id, queued from fairlead.count_levels
        where %(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s
        union all
        select tenant_id, definition_id, queued from fairlead.counts
        where not leveled and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)) c
    group by c.tenant_id, c.definition_id having sum(c.queued) > 0
    order by 3 desc limit %(most)s
)
select t.id as tenant_id, t.slug as tenant, d.id as definition_id, d.key as definition, l.queued, head.due as oldest_at,
    t.max_running as tenant_limit, d.max_running as definition_limit, d.max_running_per_tenant as pair_limit,
    case when d.kind in ('delivered', 'bullmq') then coalesce(d.engine, 'bullmq') end as engine
from levels l
join fairlead.tenants t on t.id = l.tenant_id
join fairlead.job_definitions d on d.id = l.definition_id
cross join lateral (
    with recursive heads as (
        (select r.priority, r.scheduled_for from fairlead.ready r
         where r.host_id is null and r.tenant_id = l.tenant_id and r.definition_id = l.definition_id
         order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1)
        union all
        select n.priority, n.scheduled_for from heads h cross join lateral (
            select r.priority, r.scheduled_for from fairlead.ready r
            where r.host_id is null and r.tenant_id = l.tenant_id and r.definition_id = l.definition_id
                and r.priority > h.priority
            order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1) n
    )
    select min(scheduled_for) as due from (select scheduled_for from heads limit 20) h) head
where head.due is not null
order by l.queued desc, t.slug, d.key;

-- name: running
-- Of every tenant: the limit of a definition counts them all.
select tenant_id, definition_id, count(*) as running from fairlead.leases group by tenant_id, definition_id;

-- name: hosts
-- Hosts whose agent was not seen lately, and the jobs that wait for them, counted up to a bound.
select h.id as host_id, h.name, t.slug as tenant, h.last_seen_at, w.waiting, w.oldest_at
from (
    select * from fairlead.hosts
    where (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
        and (last_seen_at is null or last_seen_at < clock_timestamp() - make_interval(secs => %(seconds)s))
        and paused_at is null and not draining
    order by last_seen_at desc nulls last limit %(most)s) h
join fairlead.tenants t on t.id = h.tenant_id
cross join lateral (
    select count(*) as waiting, min(r.scheduled_for) as oldest_at
    from (select r.scheduled_for from fairlead.ready r where r.host_id = h.id limit %(bound)s) r) w
where w.waiting > 0 or h.last_seen_at is not null
order by w.waiting desc, h.last_seen_at desc nulls last;

-- name: silent_workers
-- Of a tenant: only the workers that belong to it.
select w.worker_id, w.hostname, t.slug as tenant, w.last_seen_at, w.running_count
from fairlead.job_workers w left join fairlead.tenants t on t.id = w.tenant_id
where w.last_seen_at < clock_timestamp() - make_interval(secs => %(seconds)s)
    and (%(tenant_id)s::uuid is null or w.tenant_id = %(tenant_id)s)
order by w.last_seen_at desc, w.worker_id limit %(most)s;

-- name: fleet
select count(*) filter (where not silent) as online, count(*) filter (where silent) as silent,
    coalesce(sum(running_count) filter (where not silent), 0)::bigint as running,
    coalesce(sum(concurrency) filter (where not silent), 0)::bigint as capacity
from (
    select running_count, concurrency,
        last_seen_at < clock_timestamp() - make_interval(secs => %(seconds)s) as silent
    from fairlead.job_workers) w;

-- name: triggers
-- Of the triggers that fired last, those whose last firing failed, and how often it failed in a row.
select g.id as trigger_id, g.label, t.slug as tenant, f.failures, f.since, f.detail
from (
    select id, label, tenant_id from fairlead.job_triggers
    where is_enabled and deleted_at is null and last_fired_at is not null
        and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
    order by last_fired_at desc limit %(look)s) g
join fairlead.tenants t on t.id = g.tenant_id
cross join lateral (
    select count(*) as failures, min(fired_at) as since, max(detail) filter (where n = 1) as detail
    from (
        select f.n, f.outcome, f.fired_at, coalesce(f.detail, f.reason) as detail,
            bool_and(f.outcome = 'failed') over (order by f.n) as failed_since
        from (
            select row_number() over (order by f.id desc) as n, f.outcome, f.fired_at, f.detail, f.reason
            from (
                select * from fairlead.trigger_firings f where f.trigger_id = g.id
                order by f.trigger_id desc, f.id desc limit %(bound)s) f) f) f
    where f.failed_since) f
where f.failures > 0
order by f.since desc limit %(most)s;

-- name: pauses
-- Every closed gate that concerns the tenant, or (null) every one, the newest first.
select gate.* from (
    select 'system' as scope, 'system' as name, null::text as tenant, 'system' as subject, changed_at as paused_at,
        changed_by as paused_by, note
    from fairlead.system where not online
    union all
    select 'tenant', slug, slug, slug, paused_at, paused_by, pause_note
    from fairlead.tenants
    where paused_at is not null and (%(tenant_id)s::uuid is null or id = %(tenant_id)s)
    union all
    select 'definition', key, null, key, paused_at, paused_by, pause_note
    from fairlead.job_definitions
    where paused_at is not null and (is_active or only_tenants is null)
        and (%(tenant_id)s::uuid is null or only_tenants is null or %(tenant_id)s = any(only_tenants))
    union all
    select 'host', h.name, t.slug, h.id::text, h.paused_at, h.paused_by, h.pause_note
    from fairlead.hosts h join fairlead.tenants t on t.id = h.tenant_id
    where h.paused_at is not null and (%(tenant_id)s::uuid is null or h.tenant_id = %(tenant_id)s)
) gate
order by gate.paused_at desc limit %(most)s;

-- name: shares
-- The tenants that have work, with what decides their share.
select t.slug as tenant, t.weight, t.paused_at is not null as is_paused, coalesce(c.queued, 0)::bigint as queued,
    coalesce(l.running, 0)::bigint as running
from fairlead.tenants t
left join (
    select tenant_id, sum(queued) as queued
    from (
        select tenant_id, queued from fairlead.count_levels
        union all
        select tenant_id, queued from fairlead.counts where not leveled) c
    group by tenant_id) c on c.tenant_id = t.id
left join (select tenant_id, count(*) as running from fairlead.leases group by tenant_id) l on l.tenant_id = t.id
where c.queued > 0 or l.running > 0;

-- name: busiest_tenants
-- By the jobs that ended lately; each tenant's minutes by their index.
select t.slug as name, c.succeeded, c.failed
from fairlead.tenants t
cross join lateral (
    select greatest(0, coalesce(sum(c.succeeded), 0))::bigint as succeeded,
        greatest(0, coalesce(sum(c.failed + c.dead_letter), 0))::bigint as failed
    from fairlead.counts c
    where c.leveled in (false, true) and c.tenant_id = t.id
        and c.minute >= clock_timestamp() - make_interval(secs => %(seconds)s)) c
where c.succeeded + c.failed > 0
order by c.succeeded + c.failed desc, t.slug limit %(most)s;

-- name: busiest_definitions
select d.key as name, c.succeeded, c.failed
from (
    select c.definition_id, greatest(0, sum(c.succeeded))::bigint as succeeded,
        greatest(0, sum(c.failed + c.dead_letter))::bigint as failed
    from fairlead.counts c
    where c.leveled in (false, true) and c.tenant_id = %(tenant_id)s
        and c.minute >= clock_timestamp() - make_interval(secs => %(seconds)s)
    group by c.definition_id) c
join fairlead.job_definitions d on d.id = c.definition_id
where c.succeeded + c.failed > 0
order by c.succeeded + c.failed desc, d.key limit %(most)s;
