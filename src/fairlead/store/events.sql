-- The outbox. An event waits in events_waiting until a dispatcher deletes it there and dispatches it, in one transaction.

-- name: emit
select event_id, outcome from fairlead.emit_one(
    tenant => %(tenant)s, name => %(name)s, data => %(data)s, correlation_id => %(correlation_id)s,
    occurred_at => %(occurred_at)s, actor => %(actor)s, id => %(id)s, caused_by => %(caused_by)s);

-- name: tell_ends
select fairlead.tell_ends(array(
    select row(j.id, j.tenant_id, j.status)::fairlead.job_end from fairlead.jobs j where j.id = any(%(jobs)s)));

-- name: selected
select e.id, e.tenant_id, t.slug as tenant, e.name, e.data, e.correlation_id, e.occurred_at, e.recorded_at,
    e.dispatched_at, e.replay_of, e.only_trigger_id, e.created_by, e.caused_by, e.lineage, e.secret_paths
from fairlead.events e join fairlead.tenants t on t.id = e.tenant_id
where

-- name: by_id
e.id = %(id)s and (%(tenant_id)s::uuid is null or e.tenant_id = %(tenant_id)s)

-- name: page_all
(%(name)s::text is null or e.name = %(name)s)
and (%(correlation_id)s::text is null or e.correlation_id = %(correlation_id)s)
and (%(before)s::uuid is null or e.id < %(before)s)
order by e.id desc limit %(limit)s

-- name: page_of_tenant
e.tenant_id = %(tenant_id)s
and (%(name)s::text is null or e.name = %(name)s)
and (%(correlation_id)s::text is null or e.correlation_id = %(correlation_id)s)
and e.id < coalesce(%(before)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
order by e.tenant_id, e.id desc limit %(limit)s

-- name: take
-- By row, never by "newer than the last": a transaction may commit an older event at any time. First the oldest event of
-- each tenant, from the tenant after the last one on, then the oldest of all: a tenant with a million events delays others by
-- one turn.
-- The events of a tenant that is being moved are dispatched in its new cell.
with recursive moment as materialized (
    select clock_timestamp() as now, array(select t.id from fairlead.tenants t where t.placement <> 'here') as elsewhere
), walk as (
    select %(after)s::uuid as tenant_id, 0 as lap, 0 as tenants
    union all
    select hop.tenant_id, hop.lap, w.tenants + 1
    from walk w cross join lateral (
        (select o.tenant_id, w.lap from fairlead.events_waiting o
         where o.tenant_id > w.tenant_id and (w.lap = 0 or o.tenant_id <= %(after)s)
         order by o.tenant_id limit 1)
        union all
        (select o.tenant_id, 1 from fairlead.events_waiting o
         where w.lap = 0 and o.tenant_id <= %(after)s order by o.tenant_id limit 1)
        limit 1) hop
    where w.tenants < %(limit)s
), firsts as materialized (
    select f.spot, f.due_at, f.event_id from walk w cross join lateral (
        select o.ctid as spot, o.due_at, o.event_id from fairlead.events_waiting o
        where o.tenant_id = w.tenant_id and o.due_at <= (select now from moment)
        order by o.tenant_id, o.due_at, o.event_id limit 1 for update skip locked) f
    where w.tenants > 0 and not w.tenant_id = any((select elsewhere from moment)::uuid[])
), oldest as materialized (
    select o.ctid as spot, o.due_at, o.event_id from fairlead.events_waiting o
    where o.due_at <= (select now from moment) and not o.tenant_id = any((select elsewhere from moment)::uuid[])
    order by o.due_at, o.event_id limit %(limit)s
    for update skip locked
)
delete from fairlead.events_waiting w
where w.ctid = any (array(
    select o.spot from (
        select distinct on (o.event_id) o.* from (
            select *, 0 as turn from firsts union all select *, 1 from oldest) o
        order by o.event_id, o.turn) o
    order by o.turn, o.due_at, o.event_id limit %(limit)s))
returning w.event_id as id, w.tenant_id, w.data_bytes, w.progress,
    (select walk.tenant_id from walk order by walk.tenants desc limit 1) as last_turn,
    -- a dispatcher that stops must not keep its events locked
    set_config('idle_in_transaction_session_timeout', %(patience)s, true);

-- name: rule_costs
-- How many triggers these events are to be compared with, and how large their filters are; of a replay for one trigger, too.
select e.id, coalesce(r.number, 0), coalesce(r.bytes, 0)
from fairlead.events e left join (
    select g.tenant_id, g.event_name, count(*) as number, sum(pg_column_size(g.filter)) as bytes
    from fairlead.job_triggers g
    where g.is_enabled and g.deleted_at is null and (g.tenant_id, g.event_name) in (
        select e.tenant_id, e.name from fairlead.events e where e.id = any(%(ids)s))
    group by g.tenant_id, g.event_name) r on r.tenant_id = e.tenant_id and r.event_name = e.name
where e.id = any(%(ids)s);

-- name: taken
e.id = any(%(ids)s)
order by e.id

-- name: dispatched
update fairlead.events e set dispatched_at = clock_timestamp(), secret_paths = d.secret_paths
from jsonb_to_recordset(%(events)s) as d(id uuid, secret_paths text[]) where e.id = d.id;

-- name: put_back
insert into fairlead.events_waiting (event_id, tenant_id, due_at, data_bytes, progress)
select e.id, e.tenant_id, e.recorded_at, w.data_bytes, w.progress
from jsonb_to_recordset(%(events)s) as w(id uuid, data_bytes int, progress jsonb) join fairlead.events e on e.id = w.id;

-- name: put_off
update fairlead.events_waiting
set tries = tries + (%(seconds)s::float8 is null)::int,
    due_at = clock_timestamp() + make_interval(secs => coalesce(%(seconds)s::float8, least(300, 2 ^ least(tries, 9))))
where event_id = any(%(ids)s);

-- name: next_due
select extract(epoch from min(due_at) - clock_timestamp())::float8 from fairlead.events_waiting;

-- name: replay
-- A replay starts a new chain of triggers.
with again as (
    insert into fairlead.events (
        id, tenant_id, name, data, correlation_id, occurred_at, replay_of, only_trigger_id, created_by, secret_paths)
    select %(new_id)s, tenant_id, name, data, correlation_id, occurred_at, id, %(only_trigger_id)s, %(actor)s,
        secret_paths
    from fairlead.events where id = %(id)s
    returning id, tenant_id, data
)
insert into fairlead.events_waiting (event_id, tenant_id, data_bytes)
select id, tenant_id, octet_length(data::text) from again;

-- name: forget
-- A batch of events that were dispatched long ago.
delete from fairlead.events where id in (
    select id from fairlead.events
    where recorded_at < (select clock_timestamp() - make_interval(days => %(days)s)) and dispatched_at is not null
    order by recorded_at limit %(limit)s for update skip locked);
