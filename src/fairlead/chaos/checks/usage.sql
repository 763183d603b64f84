-- name: usage_differs
-- The recorded usage of a tenant and definition is not the sum of its attempts.
-- work: pg_temp.tries where status <> 'running'
with used as (
    select u.tenant_id, u.definition_id, sum(u.runs) as runs, sum(u.cost_cents) as cents, sum(u.run_ms) as run_ms
    from (
        select c.tenant_id, c.definition_id, c.runs, c.cost_cents, c.run_ms from fairlead.counts c where c.runs is not null
        union all
        select h.tenant_id, h.definition_id, h.runs, h.cost_cents, h.run_ms from fairlead.usage_hourly h) u
    group by u.tenant_id, u.definition_id
), done as (
    select t.tenant_id, t.definition_id, count(*) as runs, sum(t.cost_cents) as cents, sum(t.duration_ms) as run_ms
    from pg_temp.tries t where t.status <> 'running' group by t.tenant_id, t.definition_id
)
select n.slug || ' ' || d.key, 'the attempts are ' || coalesce(o.runs, 0) || ' runs, ' || coalesce(o.cents, 0) || ' cents, '
    || coalesce(o.run_ms, 0) || ' ms; the usage is ' || coalesce(u.runs, 0) || ' runs, ' || coalesce(u.cents, 0)
    || ' cents, ' || coalesce(u.run_ms, 0) || ' ms'
from used u full join done o on o.tenant_id = u.tenant_id and o.definition_id = u.definition_id
join fairlead.tenants n on n.id = coalesce(u.tenant_id, o.tenant_id)
join fairlead.job_definitions d on d.id = coalesce(u.definition_id, o.definition_id)
where coalesce(u.runs, 0) <> coalesce(o.runs, 0) or coalesce(u.cents, 0) <> coalesce(o.cents, 0)
    or coalesce(u.run_ms, 0) <> coalesce(o.run_ms, 0);

-- name: cost_differs
-- A job's cost is not the sum of the costs of its attempts.
-- work: pg_temp.tries where cost_cents > 0
select j.id, 'costs ' || j.cost_cents || ' cents, and its attempts ' || coalesce(sum(t.cost_cents), 0)
from fairlead.job_records j left join pg_temp.tries t on t.job_id = j.id
group by j.id, j.cost_cents having j.cost_cents <> coalesce(sum(t.cost_cents), 0);

-- name: level_differs
-- The counted number of a tenant's jobs of a status is not their number.
-- work: fairlead.job_records
with counted as (
    select c.tenant_id, sum(c.queued) as queued, sum(c.running) as running, sum(c.succeeded) as succeeded,
        sum(c.failed) as failed, sum(c.dead_letter) as dead_letter, sum(c.canceled) as canceled
    from (
        select tenant_id, queued, running, succeeded, failed, dead_letter, canceled from fairlead.counts where not leveled
        union all
        select tenant_id, queued, running, succeeded, failed, dead_letter, canceled from fairlead.count_levels) c
    group by c.tenant_id
), real as (
    select j.tenant_id, j.status, count(*) as jobs from fairlead.jobs j group by j.tenant_id, j.status
)
select t.slug || ' ' || s.status, 'counted ' || s.counted || ', and there are ' || coalesce(r.jobs, 0)
from counted c join fairlead.tenants t on t.id = c.tenant_id
cross join lateral (values
    ('queued', c.queued), ('running', c.running), ('succeeded', c.succeeded), ('failed', c.failed),
    ('dead_letter', c.dead_letter), ('canceled', c.canceled)) as s(status, counted)
left join real r on r.tenant_id = c.tenant_id and r.status::text = s.status
where s.counted <> coalesce(r.jobs, 0) and not exists (
    select from fairlead.removed_jobs m where m.tenant_id = c.tenant_id);
