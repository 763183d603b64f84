-- name: limit_exceeded
-- More attempts ran at once than a limit admits.
-- work: pg_temp.tries t join fairlead.job_definitions d on d.id = t.definition_id
--     join pg_temp.definition_plans p on p.key = d.key where coalesce(p.max_running, p.max_running_per_tenant) is not null
with scope as (
    select 'tenant ' || p.slug as name, p.max_running as most, t.id as tenant_id, null::uuid as definition_id, null::uuid as host_id
    from pg_temp.tenant_plans p join fairlead.tenants t on t.slug = p.slug where p.max_running is not null
    union all
    select 'definition ' || p.key, p.max_running, null, d.id, null
    from pg_temp.definition_plans p join fairlead.job_definitions d on d.key = p.key where p.max_running is not null
    union all
    select 'definition ' || p.key || ' of tenant ' || t.slug, p.max_running_per_tenant, t.id, d.id, null
    from pg_temp.definition_plans p join fairlead.job_definitions d on d.key = p.key cross join fairlead.tenants t
    where p.max_running_per_tenant is not null
    union all
    select 'host ' || h.name || ' of tenant ' || t.slug, %(host_limit)s, null, null, h.id
    from fairlead.hosts h join fairlead.tenants t on t.id = h.tenant_id where h.name = %(host)s
), change as (
    select s.name, s.most, c.at, c.difference
    from scope s
    join pg_temp.tries t on (s.tenant_id is null or t.tenant_id = s.tenant_id)
        and (s.definition_id is null or t.definition_id = s.definition_id)
        and (s.host_id is null or t.host_id = s.host_id)
    cross join lateral (values (t.started_at, 1), (t.finished_at, -1)) as c(at, difference)
    where c.at is not null and t.started_at < coalesce(t.finished_at, 'infinity')
), level as (
    -- an end comes before a start of the same moment
    select c.name, c.most, c.at, c.difference, sum(c.difference) over (
        partition by c.name order by c.at, c.difference rows unbounded preceding) as running
    from change c
)
select l.name, 'at ' || max(l.at) || ' ' || l.running || ' attempts ran at once; the limit is ' || l.most
from level l where l.difference = 1 and l.running > l.most
group by l.name, l.most, l.running order by l.name, l.running desc;

-- name: sample_exceeded
-- A count of the leases was higher than a limit.
-- work: pg_temp.samples where name <> ''
with most as (
    select 'tenant ' || p.slug as name, p.max_running as most from pg_temp.tenant_plans p
    union all
    select 'definition ' || p.key, p.max_running from pg_temp.definition_plans p
    union all
    select 'definition ' || p.key || ' of tenant ' || t.slug, p.max_running_per_tenant
    from pg_temp.definition_plans p cross join fairlead.tenants t
    union all
    select 'host ' || %(host)s, %(host_limit)s
)
select s.name, max(s.number) || ' leases at once, in ' || count(*) || ' samples; the limit is ' || m.most
from pg_temp.samples s join most m on m.name = s.name
where s.number > m.most group by s.name, m.most;
