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

-- name: ended
-- The last minutes of each tenant's counts, by their index.
select t.tenant_id, greatest(0, coalesce(c.succeeded, 0)) as succeeded, greatest(0, coalesce(c.failed, 0)) as failed
from unnest(%(tenants)s::uuid[]) as t(tenant_id)
cross join lateral (
    select sum(c.succeeded)::bigint as succeeded, sum(c.failed + c.dead_letter)::bigint as failed
    from fairlead.counts c
    where c.leveled in (false, true) and c.tenant_id = t.tenant_id
        and c.minute >= clock_timestamp() - make_interval(secs => %(seconds)s)) c;
