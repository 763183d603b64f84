-- A data key is only kept in memory if it was there before the transaction began: a key that this transaction has made may
-- be rolled back, and nothing could open what was sealed with it.

-- name: is_on
select encrypted_since is not null from fairlead.system;

-- name: hold_state
select encrypted_since is not null from fairlead.system for share;

-- name: age
select extract(epoch from clock_timestamp() - encrypted_since)::float8 from fairlead.system;

-- name: current
-- The current key of a tenant, by slug or id, or (without one) of the platform. No row for an unknown tenant.
select t.id as tenant_id, k.id, k.wrapped, k.master_key, k.created_at < transaction_timestamp() as is_settled
from fairlead.tenants t left join fairlead.tenant_keys k on k.tenant_id = t.id and k.superseded_at is null
where t.slug = %(tenant)s or t.id = fairlead.as_id(%(tenant)s)
union all
select null, k.id, k.wrapped, k.master_key, k.created_at < transaction_timestamp()
from (select) one left join fairlead.tenant_keys k on k.tenant_id is null and k.superseded_at is null
where %(tenant)s is null;

-- name: get
select tenant_id, id, wrapped, master_key, created_at < transaction_timestamp() as is_settled
from fairlead.tenant_keys where id = any(%(ids)s);

-- name: add
-- No row if another transaction has just made one.
insert into fairlead.tenant_keys (id, tenant_id, wrapped, master_key)
values (%(id)s, %(tenant_id)s, %(wrapped)s, %(master_key)s) on conflict do nothing;

-- name: enable
update fairlead.system set encrypted_since = clock_timestamp() where encrypted_since is null returning encrypted_since;
