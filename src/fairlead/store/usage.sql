-- Usage is the sum of usage_hourly and of the rows of counts that have not been folded into it yet. One statement reads
-- both, so each run is in exactly one of them during a fold. An hour's event has the whole hour.

-- name: clock
select clock_timestamp() as now, (select timezone from fairlead.tenants where id = %(tenant_id)s) as timezone;

-- name: used
-- In steps, the newest first.
with parts as (
    select tenant_id, definition_id, hour, runs, succeeded, failed, dead_letter, canceled, retried, run_ms, queue_ms,
        cost_cents
    from fairlead.usage_hourly
    where (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s) and hour >= %(since)s and hour < %(until)s
    union all
    select tenant_id, definition_id, date_trunc('hour', minute, 'UTC'), runs, succeeded, failed, dead_letter, canceled,
        retried, run_ms, queue_ms, cost_cents
    from fairlead.counts
    where leveled in (false, true) and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
        and minute >= %(since)s and minute < %(until)s and runs is not null
), used as (
    select case when %(per)s = 'definition' then definition_id end as definition_id,
        case when %(per)s = 'tenant' then tenant_id end as tenant_id,
        width_bucket(hour, %(starts)s::timestamptz[]) as step,
        sum(runs)::bigint as runs, sum(succeeded)::bigint as succeeded, sum(failed)::bigint as failed,
        sum(dead_letter)::bigint as dead_letter, sum(canceled)::bigint as canceled, sum(retried)::bigint as retried,
        sum(runs - succeeded - failed - dead_letter - canceled - retried)::bigint as released,
        sum(run_ms)::bigint as run_ms, sum(queue_ms)::bigint as queue_ms, sum(cost_cents)::bigint as cost_cents
    from parts group by 1, 2, 3
)
select d.key as definition_key, t.slug as tenant, (%(starts)s::timestamptz[])[u.step] as starts_at, u.runs, u.succeeded,
    u.failed, u.dead_letter, u.canceled, u.retried, u.released, u.run_ms, u.queue_ms, u.cost_cents
from used u
left join fairlead.job_definitions d on d.id = u.definition_id
left join fairlead.tenants t on t.id = u.tenant_id
order by u.step desc, d.key, t.slug
limit %(limit)s;

-- name: run_time
-- The run time of each hour of the tenants that ran most, with that of all tenants and the weights of those that ran.
with used as (
    select p.tenant_id, p.hour, sum(p.run_ms)::bigint as run_ms
    from (
        select tenant_id, hour, run_ms from fairlead.usage_hourly where hour >= %(since)s
        union all
        select tenant_id, date_trunc('hour', minute, 'UTC'), run_ms from fairlead.counts
        where leveled in (false, true) and minute >= %(since)s and runs is not null) p
    group by p.tenant_id, p.hour having sum(p.run_ms) > 0
), hours as (
    select u.hour, sum(u.run_ms)::bigint as total_ms, sum(t.weight)::bigint as weights
    from used u join fairlead.tenants t on t.id = u.tenant_id group by u.hour
), most as (
    select tenant_id from used group by tenant_id order by sum(run_ms) desc limit %(most)s
)
select t.slug as tenant, t.weight, u.hour, u.run_ms, h.total_ms, h.weights
from used u
join most m on m.tenant_id = u.tenant_id
join hours h on h.hour = u.hour
join fairlead.tenants t on t.id = u.tenant_id
order by u.hour, t.slug;

-- name: closing
-- The hour that has begun, and our transaction id: a transaction that ends runs before that hour has a lower id, since it
-- reads the clock after it gets its id.
select date_trunc('hour', clock_timestamp(), 'UTC') as hour, pg_current_xact_id()::text as numbered;

-- name: closed
-- Whether all transactions with lower ids have ended, so that their runs are visible.
select pg_snapshot_xmin(pg_current_snapshot()) >= %(numbered)s::xid8;

-- name: until_next_hour
select extract(epoch from date_trunc('hour', clock_timestamp(), 'UTC') + interval '1 hour' - clock_timestamp())::float8;

-- name: listeners
-- Tenants with a trigger for usage.recorded that lack events of hours before this one, and the first such hour. For a new
-- tenant that is the hour in which its first trigger was created.
with listening as (
    select g.tenant_id, date_trunc('hour', min(g.created_at), 'UTC') as since
    from fairlead.job_triggers g
    where g.event_name = %(name)s and g.is_enabled and g.deleted_at is null
    group by g.tenant_id
), added as (
    insert into fairlead.usage_told (tenant_id, until)
    select tenant_id, since from listening on conflict do nothing
    returning tenant_id, until
)
select l.tenant_id, coalesce(t.until, a.until) as until
from listening l
left join fairlead.usage_told t on t.tenant_id = l.tenant_id
left join added a on a.tenant_id = l.tenant_id
where coalesce(t.until, a.until) < %(hour)s
order by 2, 1 limit %(limit)s;

-- name: tell
-- The events of a tenant's hours, and the hour up to which it has them, in one statement.
with event as (
    insert into fairlead.events (id, tenant_id, name, data, occurred_at, created_by)
    select fairlead.uuid7(), %(tenant_id)s, %(name)s, e.data, e.hour + interval '1 hour', 'watchdog'
    from jsonb_to_recordset(%(hours)s) as e(hour timestamptz, data jsonb)
    returning id, tenant_id, name, created_by
), waiting as (
    insert into fairlead.events_waiting (event_id, tenant_id) select id, tenant_id from event
), audited as (
    insert into fairlead.audit_log (tenant_id, actor, action, resource_type, resource_id, details)
    select tenant_id, created_by, 'event_emitted', 'event', id::text, jsonb_build_object('name', name) from event
)
update fairlead.usage_told set until = %(until)s where tenant_id = %(tenant_id)s;
