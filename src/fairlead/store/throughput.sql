-- Throughput, from the flows in counts: minutes are kept for about a day.

-- name: flow
-- Every step of the requested time, also empty ones.
with steps as (
    select generate_series(
        date_bin(make_interval(secs => %(step)s), clock_timestamp() - make_interval(secs => %(seconds)s), 'epoch'),
        clock_timestamp(), make_interval(secs => %(step)s)) as at
), flows as (
    select date_bin(make_interval(secs => %(step)s), minute, 'epoch') as at,
        sum(succeeded)::bigint as succeeded, sum(failed + dead_letter)::bigint as failed
    from fairlead.counts
    where leveled in (false, true) and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
        and minute >= clock_timestamp() - make_interval(secs => %(seconds)s + %(step)s)
    group by 1
)
select s.at, greatest(0, coalesce(f.succeeded, 0)) as succeeded, greatest(0, coalesce(f.failed, 0)) as failed
from steps s left join flows f using (at) order by s.at;

-- name: definition_flow
-- Of a definition, of one tenant or (null) of all: each tenant's minutes by their index. `hourly`: from the usage, by hour,
-- and from the runs in counts that are not part of it yet.
with steps as (
    select generate_series(
        date_bin(make_interval(secs => %(step)s), clock_timestamp() - make_interval(secs => %(seconds)s), 'epoch'),
        clock_timestamp(), make_interval(secs => %(step)s)) as at
), parts as (
    select c.minute as at, c.succeeded, c.failed + c.dead_letter as failed
    from fairlead.tenants t cross join lateral (
        select c.minute, c.succeeded, c.failed, c.dead_letter from fairlead.counts c
        where c.leveled in (false, true) and c.tenant_id = t.id and c.definition_id = %(definition_id)s
            and c.minute >= clock_timestamp() - make_interval(secs => %(seconds)s + %(step)s)
            and (not %(hourly)s or c.runs is not null)) c
    where %(tenant_id)s::uuid is null or t.id = %(tenant_id)s
    union all
    select u.hour, u.succeeded, u.failed + u.dead_letter
    from fairlead.tenants t cross join lateral (
        select u.hour, u.succeeded, u.failed, u.dead_letter from fairlead.usage_hourly u
        where u.tenant_id = t.id and u.definition_id = %(definition_id)s
            and u.hour >= clock_timestamp() - make_interval(secs => %(seconds)s + %(step)s)) u
    where %(hourly)s and (%(tenant_id)s::uuid is null or t.id = %(tenant_id)s)
), flows as (
    select date_bin(make_interval(secs => %(step)s), p.at, 'epoch') as at, sum(p.succeeded)::bigint as succeeded,
        sum(p.failed)::bigint as failed
    from parts p group by 1
)
select s.at, greatest(0, coalesce(f.succeeded, 0)) as succeeded, greatest(0, coalesce(f.failed, 0)) as failed
from steps s left join flows f using (at) order by s.at;

-- name: ended
-- The last minutes of each tenant's counts, by their index.
select t.tenant_id, greatest(0, coalesce(c.succeeded, 0)) as succeeded, greatest(0, coalesce(c.failed, 0)) as failed
from unnest(%(tenants)s::uuid[]) as t(tenant_id)
cross join lateral (
    select sum(c.succeeded)::bigint as succeeded, sum(c.failed + c.dead_letter)::bigint as failed
    from fairlead.counts c
    where c.leveled in (false, true) and c.tenant_id = t.tenant_id
        and c.minute >= clock_timestamp() - make_interval(secs => %(seconds)s)) c;
