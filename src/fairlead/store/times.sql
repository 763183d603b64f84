-- Waiting and run times, of a bounded sample of the attempts that ended lately.

-- name: sampled
-- Of a tenant, or (null) of all; of a definition, or (null) of all definitions: all together (no definition), then by
-- definition, the slowest first. The jobs of the sample are the newest, those of the newest attempts with a row, and,
-- behind a long queue, those whose success the audit log has.
with sampled as materialized (
    (select r.id from fairlead.job_records r where %(tenant_id)s::uuid is null order by r.id desc limit %(look)s)
    union
    (select r.id from fairlead.job_records r where r.tenant_id = %(tenant_id)s and %(definition_id)s::uuid is null
     order by r.tenant_id desc, r.id desc limit %(look)s)
    union
    -- the index jobs_by_definition
    (select r.id from fairlead.job_records r where r.tenant_id = %(tenant_id)s and r.definition_id = %(definition_id)s
     order by r.tenant_id desc, r.definition_id desc, r.id desc limit %(look)s)
    union
    (select a.job_id from fairlead.job_attempts a where %(tenant_id)s::uuid is null
     order by a.job_id desc, a.attempt_no desc limit %(look)s)
    union
    (select job.id
     from (select id from fairlead.tenants t where %(tenant_id)s::uuid is null or t.id = %(tenant_id)s) t
     cross join lateral (
        select g.jobs from fairlead.audit_log g
        where g.tenant_id = t.id and g.at > clock_timestamp() - make_interval(secs => %(seconds)s) and g.jobs is not null
        order by g.at desc limit 100) g
     cross join lateral unnest(g.jobs) as job(id)
     limit %(look)s)
), newest as (
    select j.definition_id, a.queue_ms, a.duration_ms
    from sampled s
    cross join lateral (select j.definition_id from fairlead.job_records j where j.id = s.id offset 0) j
    cross join lateral (
        select a.queue_ms, a.duration_ms, a.finished_at from fairlead.attempts a where a.job_id = s.id offset 0) a
    where (%(definition_id)s::uuid is null or j.definition_id = %(definition_id)s)
        and a.finished_at > clock_timestamp() - make_interval(secs => %(seconds)s)
        and a.queue_ms is not null and a.duration_ms is not null
), grouped as (
    select n.definition_id, count(*) as jobs,
        percentile_disc(array[0.5, 0.95, 0.99]) within group (order by n.queue_ms) as wait_ms,
        percentile_disc(array[0.5, 0.95, 0.99]) within group (order by n.duration_ms) as run_ms
    from newest n group by grouping sets ((), (n.definition_id))
)
select d.key as definition_key, g.jobs,
    case when g.jobs > 0 then
        jsonb_build_object('p50', g.wait_ms[1], 'p95', g.wait_ms[2], 'p99', g.wait_ms[3]) end as wait_ms,
    case when g.jobs > 0 then
        jsonb_build_object('p50', g.run_ms[1], 'p95', g.run_ms[2], 'p99', g.run_ms[3]) end as run_ms
from grouped g left join fairlead.job_definitions d on d.id = g.definition_id
order by d.key is not null, g.run_ms[2] desc, d.key limit %(most)s + 1;
