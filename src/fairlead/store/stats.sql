-- Current numbers. Nothing here counts or searches jobs: levels are in count_levels and the counts not yet folded into it,
-- running jobs are in leases, and each tenant's last failures are the end of an index.

-- name: counts
select clock_timestamp() as at, coalesce(sum(queued), 0)::bigint as queued, coalesce(sum(running), 0)::bigint as running,
    coalesce(sum(succeeded), 0)::bigint as succeeded, coalesce(sum(failed), 0)::bigint as failed,
    coalesce(sum(dead_letter), 0)::bigint as dead_letter, coalesce(sum(canceled), 0)::bigint as canceled
from (
    select queued, running, succeeded, failed, dead_letter, canceled from fairlead.count_levels
    where %(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s
    union all
    select queued, running, succeeded, failed, dead_letter, canceled from fairlead.counts
    where not leveled and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)) parts;

-- name: oldest_ready
-- The due time of the oldest ready job. The index orders ready jobs by definition, priority and time: the first job of
-- each definition and priority is that group's oldest, and the loose index scan reads one per group. Exact up to a
-- thousand groups, for any worker and for each of a thousand hosts.
with recursive free as (
    select '00000000-0000-0000-0000-000000000000'::uuid as definition_id, 0 as priority,
        null::timestamptz as scheduled_for, 0 as step
    union all
    select hop.definition_id, hop.priority, hop.scheduled_for, f.step + 1
    from free f cross join lateral (
        select r.definition_id, r.priority, r.scheduled_for from fairlead.ready r
        where r.host_id is null and r.tenant_id = %(tenant_id)s
            and (r.definition_id, r.priority) > (f.definition_id, f.priority)
        order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1) hop
    where f.step < 1000
), bound as (
    select h.id as host_id, '00000000-0000-0000-0000-000000000000'::uuid as definition_id, 0 as priority,
        null::timestamptz as scheduled_for, 0 as step
    from (select h.id from fairlead.hosts h where h.tenant_id = %(tenant_id)s limit 1000) h
    union all
    select b.host_id, hop.definition_id, hop.priority, hop.scheduled_for, b.step + 1
    from bound b cross join lateral (
        select r.definition_id, r.priority, r.scheduled_for from fairlead.ready r
        where r.host_id = b.host_id and r.tenant_id = %(tenant_id)s
            and (r.definition_id, r.priority) > (b.definition_id, b.priority)
        order by r.host_id, r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1) hop
    where b.step < 1000
)
select least((select min(scheduled_for) from free), (select min(scheduled_for) from bound));

-- name: times
-- Waiting and run times of a tenant's newest jobs, all together (no definition) and by definition: of each job's last ended
-- attempt. It reads a bounded number of jobs.
select d.key as definition_key, t.jobs,
    case when t.jobs > 0 then
        jsonb_build_object('p50', t.wait_ms[1], 'p95', t.wait_ms[2], 'p99', t.wait_ms[3]) end as wait_ms,
    case when t.jobs > 0 then
        jsonb_build_object('p50', t.run_ms[1], 'p95', t.run_ms[2], 'p99', t.run_ms[3]) end as run_ms
from (
    select j.definition_id, count(*) as jobs,
        percentile_disc(array[0.5, 0.95, 0.99]) within group (order by coalesce(a.queue_ms, 0)) as wait_ms,
        percentile_disc(array[0.5, 0.95, 0.99]) within group (order by coalesce(a.duration_ms, 0)) as run_ms
    from (
        select j.id, j.definition_id, j.attempt_count from fairlead.job_records j
        where j.tenant_id = %(tenant_id)s order by j.tenant_id desc, j.id desc limit %(look)s) j
    cross join lateral (
        select a.queue_ms, a.duration_ms from fairlead.attempts a
        where a.job_id = j.id and a.attempt_no = j.attempt_count offset 0) a
    group by grouping sets ((), (j.definition_id))
) t
left join fairlead.job_definitions d on d.id = t.definition_id
order by d.key nulls first;

-- name: running
-- The longest running first.
select l.job_id, l.attempt_no, d.key as definition_key, t.slug as tenant, l.worker_id, l.started_at
from fairlead.leases l
join fairlead.tenants t on t.id = l.tenant_id
join fairlead.job_definitions d on d.id = l.definition_id
where %(tenant_id)s::uuid is null or l.tenant_id = %(tenant_id)s
order by l.started_at, l.job_id limit %(limit)s;

-- name: failures
-- The latest first. The index has canceled jobs, too: a bounded part of each tenant's entries is searched.
select last.id as job_id, d.key as definition_key, t.slug as tenant, last.status, last.finished_at, last.last_error
from fairlead.tenants t
cross join lateral (
    select j.id, j.definition_id, j.status, j.finished_at, j.last_error from fairlead.jobs j
    where j.tenant_id = t.id and j.troubled order by j.id desc limit 50) last
join fairlead.job_definitions d on d.id = last.definition_id
where (%(tenant_id)s::uuid is null or t.id = %(tenant_id)s) and last.status in ('failed', 'dead_letter')
order by last.finished_at desc, last.id desc limit %(limit)s;

-- name: queued
select coalesce((select sum(queued) from fairlead.count_levels where tenant_id = %(tenant_id)s), 0)
    + coalesce((select sum(queued) from fairlead.counts where not leveled and tenant_id = %(tenant_id)s), 0);
