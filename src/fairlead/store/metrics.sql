-- Figures for a scrape. Nothing here counts jobs: levels and flows are sums of count_levels and of the counts not folded yet, ages are heads of an index, and
-- what runs is in leases. So a scrape costs the same with a thousand jobs and with a million.

-- name: levels
-- Each tenant's jobs by status, and the changes of the last whole minute. A transition adds up to zero and an enqueue to
-- one, so the sum over a minute's statuses is the number of enqueued jobs. So is the sum of all minutes, plus the jobs that
-- retention has removed.
select t.slug as tenant, c.*,
    (c.queued + c.running + c.succeeded + c.failed + c.dead_letter + c.canceled
        + coalesce((select sum(r.jobs) from fairlead.removed_jobs r where r.tenant_id = c.tenant_id), 0))::bigint
        as enqueued
from (
    select c.tenant_id, sum(c.queued)::bigint as queued, sum(c.running)::bigint as running,
        sum(c.succeeded)::bigint as succeeded, sum(c.failed)::bigint as failed,
        sum(c.dead_letter)::bigint as dead_letter, sum(c.canceled)::bigint as canceled,
        coalesce(sum(c.queued + c.running + c.succeeded + c.failed + c.dead_letter + c.canceled)
            filter (where c.minute = m.minute), 0)::bigint as minute_enqueued,
        coalesce(sum(c.succeeded) filter (where c.minute = m.minute), 0)::bigint as minute_succeeded,
        coalesce(sum(c.failed) filter (where c.minute = m.minute), 0)::bigint as minute_failed,
        coalesce(sum(c.dead_letter) filter (where c.minute = m.minute), 0)::bigint as minute_dead_letter,
        coalesce(sum(c.canceled) filter (where c.minute = m.minute), 0)::bigint as minute_canceled,
        sum(c.runs_succeeded)::bigint as runs_succeeded, sum(c.runs_failed)::bigint as runs_failed,
        sum(c.runs_dead_letter)::bigint as runs_dead_letter, sum(c.runs_retried)::bigint as runs_retried,
        sum(c.runs_lost)::bigint as runs_lost
    from (
        select tenant_id, null::timestamptz as minute, queued, running, succeeded, failed, dead_letter, canceled,
            runs_succeeded, runs_failed, runs_dead_letter, runs_retried, runs_lost
        from fairlead.count_levels
        union all
        -- the last whole minute is not folded yet
        select tenant_id, minute, queued, running, succeeded, failed, dead_letter, canceled,
            case when runs is not null then succeeded else 0 end, case when runs is not null then failed else 0 end,
            case when runs is not null then dead_letter else 0 end, coalesce(retried, 0), coalesce(lost, 0)
        from fairlead.counts where not leveled) c
    cross join (select date_trunc('minute', clock_timestamp()) - interval '1 minute' as minute) m
    group by c.tenant_id
) c
join fairlead.tenants t on t.id = c.tenant_id
order by c.queued + c.running desc, t.slug;

-- name: oldest
-- The seconds that each tenant's oldest due job has waited: the first jobs of its definitions and priorities, found by a
-- loose index scan.
with recursive head as (
    select t.tenant_id, '00000000-0000-0000-0000-000000000000'::uuid as definition_id, null::integer as priority,
        null::timestamptz as scheduled_for, 0 as hops
    from unnest(%(tenants)s::uuid[]) as t(tenant_id)
    union all
    select h.tenant_id, next.definition_id, next.priority, next.scheduled_for, h.hops + 1
    from head h cross join lateral (
        select r.definition_id, r.priority, r.scheduled_for from fairlead.ready r
        where r.host_id is null and r.tenant_id = h.tenant_id
            and (r.definition_id, r.priority) > (h.definition_id, coalesce(h.priority, -2147483648))
        order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1) next
    where h.hops < %(most)s
)
select tenant_id, extract(epoch from clock_timestamp() - min(scheduled_for))::float8
from head where scheduled_for is not null group by tenant_id;

-- name: fleet
-- The live workers, their concurrency, and whether the system's gate is open.
select (select count(*) from fairlead.job_workers where last_seen_at > clock_timestamp() - interval '1 minute'),
    (select coalesce(sum(concurrency), 0) from fairlead.job_workers
        where last_seen_at > clock_timestamp() - interval '1 minute'),
    (select online from fairlead.system);

-- name: recent
-- Waiting and run times by tenant (or of all together) and definition: a sample of the attempts that ended recently. Its
-- jobs are the newest (ids are in the order of creation), those of the newest attempts with a row, and, behind a long queue,
-- those whose success the audit log has.
with sampled as materialized (
    (select r.id from fairlead.job_records r order by r.id desc limit %(look)s)
    union
    (select a.job_id from fairlead.job_attempts a order by a.job_id desc, a.attempt_no desc limit %(look)s)
    union
    (select job.id from fairlead.tenants t cross join lateral (
        select g.jobs from fairlead.audit_log g
        where g.tenant_id = t.id and g.at > clock_timestamp() - make_interval(secs => %(seconds)s) and g.jobs is not null
        order by g.at desc limit 100) g cross join lateral unnest(g.jobs) as job(id)
     limit %(look)s)
), newest as (
    select a.job_id, a.queue_ms, a.duration_ms, a.finished_at from sampled s cross join lateral (
        select a.job_id, a.queue_ms, a.duration_ms, a.finished_at from fairlead.attempts a where a.job_id = s.id offset 0) a
), grouped as (
    select case when %(by_tenant)s then j.tenant_id end as tenant_id, j.definition_id, count(*) as attempts,
        percentile_cont(%(quantiles)s::float8[]) within group (order by n.queue_ms / 1000.0::float8) as queue_seconds,
        percentile_cont(%(quantiles)s::float8[]) within group (order by n.duration_ms / 1000.0::float8) as run_seconds
    from newest n join fairlead.job_records j on j.id = n.job_id
    where n.finished_at > clock_timestamp() - make_interval(secs => %(seconds)s)
        and n.queue_ms is not null and n.duration_ms is not null
    group by 1, 2
)
select t.slug as tenant, d.key as definition, g.attempts, g.queue_seconds, g.run_seconds
from grouped g
join fairlead.job_definitions d on d.id = g.definition_id
left join fairlead.tenants t on t.id = g.tenant_id
order by g.attempts desc, t.slug, d.key limit %(most)s;
