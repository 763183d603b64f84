-- A message becomes an event in the transaction that inserts its id into source_messages; a later delivery finds the id.

-- name: selected
select s.name, s.driver, s.tenant_id, (select t.slug from fairlead.tenants t where t.id = s.tenant_id) as tenant, s.event,
    case
        when s.paused_at is not null then 'paused'
        when s.seen_at < clock_timestamp() - make_interval(secs => %(silent_seconds)s) then 'stopped'
        when s.failing_since is not null then 'failing'
        else 'running'
    end as state,
    s.messages, s.duplicates, s.refused, s.last_message_at, s.last_refusal, s.failing_since, s.last_error, s.paused_at,
    s.paused_by, s.pause_note as note, s.seen_at
from fairlead.sources s

-- name: page
where s.name > %(after)s and (%(tenant_id)s::uuid is null or s.tenant_id = %(tenant_id)s)
order by s.name limit %(limit)s

-- name: by_name
where s.name = %(name)s

-- name: seen
-- A process reports that it runs a source. Returns whether the source is paused.
insert into fairlead.sources as s (name, driver, tenant_id, event)
values (%(name)s, %(driver)s, %(tenant_id)s, %(event)s)
on conflict (name) do update
set seen_at = clock_timestamp(), driver = excluded.driver, tenant_id = excluded.tenant_id, event = excluded.event
returning s.paused_at is not null;

-- name: is_paused
select s.paused_at is not null from fairlead.sources s where s.name = %(name)s;

-- name: pause
-- Keeps the time of the first request.
update fairlead.sources
set paused_at = coalesce(paused_at, clock_timestamp()), paused_by = %(actor)s, pause_note = coalesce(%(note)s, pause_note)
where name = %(name)s;

-- name: resume
update fairlead.sources set paused_at = null, paused_by = null, pause_note = null where name = %(name)s;

-- name: fail
update fairlead.sources
set failing_since = coalesce(failing_since, clock_timestamp()), last_error = %(why)s, seen_at = clock_timestamp()
where name = %(name)s;

-- name: recover
update fairlead.sources set failing_since = null where name = %(name)s and failing_since is not null;

-- name: count
update fairlead.sources
set messages = messages + %(messages)s, duplicates = duplicates + %(duplicates)s, refused = refused + %(refused)s,
    last_refusal = coalesce(%(last_refusal)s, last_refusal), failing_since = null, seen_at = clock_timestamp(),
    last_message_at = clock_timestamp()
where name = %(name)s;

-- name: remember
-- Sorted, so that processes with the same messages wait for each other instead of running into a deadlock.
insert into fairlead.source_messages (source, message_id, expires_at)
select %(source)s, m.id, clock_timestamp() + make_interval(days => %(days)s)
from (select unnest(%(ids)s::text[]) as id order by 1) m
on conflict do nothing
returning message_id;

-- name: forget_ids
delete from fairlead.source_messages where source = %(source)s and message_id = any(%(ids)s);

-- name: emit
-- Row by row, in the order of the document.
select o.event_id, o.outcome
from jsonb_array_elements(%(events)s) with ordinality as e(said, n)
cross join lateral fairlead.emit_one(
    tenant => e.said ->> 'tenant', name => e.said ->> 'name', data => e.said -> 'data',
    occurred_at => (e.said ->> 'occurred_at')::timestamptz, actor => %(actor)s, id => (e.said ->> 'id')::uuid) o;

-- name: forget
delete from fairlead.source_messages where (source, message_id) in (
    select source, message_id from fairlead.source_messages
    where expires_at < clock_timestamp() order by expires_at limit %(limit)s for update skip locked);
