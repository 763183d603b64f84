-- What workers run and could start now. Only the queue is read, never jobs, and each pair of tenant and definition is counted
-- up to a bound: the time does not grow with history, with what is due later, or with the length of a queue. The bound is
-- lower where many pairs have jobs: an autoscaler asks every few seconds, and a million jobs took it a second.

-- name: pairs
-- Pairs with due or running jobs, of all tenants: the limits of a definition count them all. Jobs that are bound to a host
-- are not due here, since only its agent takes them. Jobs that are due but not staged yet count: with no worker running it is
-- this answer that starts one.
with leased as (
    select tenant_id, definition_id, count(*) filter (where host_id is null) as running, count(*) as leased
    from fairlead.leases group by tenant_id, definition_id
), unstaged as (
    select tenant_id, definition_id, count(*) as due
    from (
        select tenant_id, definition_id from fairlead.later
        where not held and not alone and host_id is null and due_at <= (select clock_timestamp())
            and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
        order by due_at, job_id limit %(most)s) l
    group by tenant_id, definition_id
), suspect as (
    select tenant_id, definition_id, count(*) as due
    from (
        select tenant_id, definition_id from fairlead.later
        where alone and host_id is null and due_at <= (select clock_timestamp())
            and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
        limit %(most)s) l
    group by tenant_id, definition_id
), queued as materialized (
    select tenant_id, definition_id
    from (
        select tenant_id, definition_id, queued from fairlead.count_levels
        where %(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s
        union all
        select tenant_id, definition_id, queued from fairlead.counts
        where not leveled and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)) c
    where %(definition_id)s::uuid is null or definition_id = %(definition_id)s
    group by tenant_id, definition_id having sum(queued) > 0
), probe as materialized (
    -- the first share of the budget: the same bound for every pair
    select q.tenant_id, q.definition_id, b.most, r.due
    from queued q
    cross join (
        select least(%(most)s, greatest(%(least)s, %(budget)s / greatest(count(*), 1))) as most from queued) b
    cross join lateral (
        select count(*) as due from (
            select 1 from fairlead.ready r
            where r.host_id is null and r.tenant_id = q.tenant_id and r.definition_id = q.definition_id
            limit b.most) r) r
), longer as materialized (
    -- the second: for the pairs that have more
    select tenant_id, definition_id, least(%(most)s, most + %(budget)s / count(*) over ()) as most from probe where due >= most
), staged as (
    select tenant_id, definition_id, due from probe where due < most
    union all
    select l.tenant_id, l.definition_id, r.due
    from longer l cross join lateral (
        select count(*) as due from (
            select 1 from fairlead.ready r
            where r.host_id is null and r.tenant_id = l.tenant_id and r.definition_id = l.definition_id
            limit l.most) r) r
), pair as (
    select tenant_id, definition_id, sum(due)::bigint as due, sum(running)::bigint as running, sum(leased)::bigint as leased
    from (
        select tenant_id, definition_id, due, 0 as running, 0 as leased from staged
        union all
        select tenant_id, definition_id, due, 0, 0 from unstaged
        union all
        select tenant_id, definition_id, due, 0, 0 from suspect
        union all
        select tenant_id, definition_id, 0, running, leased from leased) p
    group by tenant_id, definition_id
)
select p.tenant_id, p.definition_id, p.due, p.running, p.leased, d.slots,
    s.online and t.paused_at is null and d.paused_at is null and t.placement = 'here' as is_open,
    t.max_running as tenant_limit, d.max_running as definition_limit, d.max_running_per_tenant as pair_limit
from pair p
join fairlead.tenants t on t.id = p.tenant_id
join fairlead.job_definitions d on d.id = p.definition_id
cross join fairlead.system s
order by p.tenant_id, p.definition_id;
