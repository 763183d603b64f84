-- Hooks, their secrets, and the deliveries that became events. A delivery is stored in the transaction that stores its
-- event, and its key is unique: a repeated delivery waits for the first and then finds it.

-- name: selected
select h.id, h.tenant_id, t.slug as tenant, h.name, h.scheme, h.event_name, h.unique_by, h.tolerance_seconds,
    h.is_enabled, h.created_by, h.created_at, h.updated_at, h.last_refused_at, h.last_refusal,
    (select max(s.valid_until) from fairlead.hook_secrets s
     where s.hook_id = h.id and s.valid_until > clock_timestamp()) as old_secret_until,
    (select max(d.received_at) from fairlead.hook_deliveries d where d.hook_id = h.id) as last_received_at
from fairlead.hooks h join fairlead.tenants t on t.id = h.tenant_id
where (%(tenant_id)s::uuid is null or h.tenant_id = %(tenant_id)s)

-- name: by_id
and h.id = %(id)s

-- name: named
and h.name = %(name)s order by h.id limit 2

-- name: page
and (%(after)s::uuid is null or h.id > %(after)s)
order by h.id limit %(limit)s

-- name: count
select count(*) from fairlead.hooks where tenant_id = %(tenant_id)s;

-- name: add
-- No row if the name is taken.
insert into fairlead.hooks (tenant_id, name, scheme, event_name, unique_by, tolerance_seconds, is_enabled, created_by)
values (%(tenant_id)s, %(name)s, %(scheme)s, %(event_name)s, %(unique_by)s, %(tolerance_seconds)s, %(is_enabled)s,
    %(created_by)s)
on conflict do nothing returning id;

-- name: add_secret
insert into fairlead.hook_secrets (hook_id, tenant_id, secret) values (%(hook_id)s, %(tenant_id)s, %(secret)s);

-- name: expire_secrets
-- The current secret, and any before it, for which an earlier end stays.
update fairlead.hook_secrets
set valid_until = least(valid_until, clock_timestamp() + make_interval(secs => %(seconds)s))
where hook_id = %(hook_id)s and (valid_until is null or valid_until > clock_timestamp());

-- name: change
update fairlead.hooks set event_name = %(event_name)s, unique_by = %(unique_by)s,
    tolerance_seconds = %(tolerance_seconds)s, is_enabled = %(is_enabled)s, updated_at = clock_timestamp()
where id = %(id)s;

-- name: remove
delete from fairlead.hooks where id = %(id)s;

-- name: find_keyed
-- By the tenant's slug and the hook's name, with the valid secrets, newest first. Only the system may run it.
select h.id, h.tenant_id, h.name, h.scheme, h.event_name, h.unique_by, h.tolerance_seconds, h.is_enabled,
    array(select s.secret from fairlead.hook_secrets s
          where s.hook_id = h.id and (s.valid_until is null or s.valid_until > clock_timestamp())
          order by s.created_at desc) as secrets
from fairlead.tenants t join fairlead.hooks h on h.tenant_id = t.id
where t.slug = %(tenant)s and h.name = %(name)s;

-- name: take_delivery
-- No row if the key was used before, or if the hook is gone or disabled; waits for a transaction that uses the key now.
insert into fairlead.hook_deliveries (hook_id, key, tenant_id, event_id)
select h.id, %(key)s, h.tenant_id, %(event_id)s from fairlead.hooks h
where h.id = %(hook_id)s and h.is_enabled for key share
on conflict do nothing returning event_id;

-- name: earlier_delivery
select event_id from fairlead.hook_deliveries where hook_id = %(hook_id)s and key = %(key)s;

-- name: events_of
-- The newest deliveries, and their events as far as retention has not removed them.
select d.event_id, d.received_at, e.name from fairlead.hook_deliveries d
left join fairlead.events e on e.id = d.event_id
where d.hook_id = %(hook_id)s order by d.hook_id, d.received_at desc limit %(limit)s;

-- name: note_refusal
update fairlead.hooks set last_refused_at = clock_timestamp(), last_refusal = %(refusal)s where id = %(id)s;

-- name: forget_deliveries
delete from fairlead.hook_deliveries where received_at < clock_timestamp() - make_interval(days => %(days)s);

-- name: forget_secrets
delete from fairlead.hook_secrets where valid_until < clock_timestamp();
