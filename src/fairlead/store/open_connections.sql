-- Connections that server processes hold open for tenants. A row is a lease: it counts until it expires.

-- name: tell
-- Stores this process's numbers. Returns the other processes' numbers and the tenants' own quotas.
-- Processes do not wait for each other: each writes its own rows.
with said as (
    select * from unnest(%(tenants)s::uuid[], %(quotas)s::text[], %(held)s::int[]) as s(tenant_id, quota, held)
), gone as (
    delete from fairlead.openings o using said s
    where s.held = 0 and o.tenant_id = s.tenant_id and o.quota = s.quota and o.server_id = %(server_id)s
), kept as (
    insert into fairlead.openings as o (tenant_id, quota, server_id, held, expires_at)
    select s.tenant_id, s.quota, %(server_id)s, s.held, clock_timestamp() + make_interval(secs => %(seconds)s)
    from said s where s.held > 0 order by s.tenant_id, s.quota
    on conflict (tenant_id, quota, server_id) do update set held = excluded.held, expires_at = excluded.expires_at
)
select s.tenant_id, s.quota, t.quotas as own, coalesce((
    select sum(o.held) from fairlead.openings o
    where o.tenant_id = s.tenant_id and o.quota = s.quota and o.server_id <> %(server_id)s
        and o.expires_at > clock_timestamp()), 0)::int as others
from said s join fairlead.tenants t on t.id = s.tenant_id;

-- name: held
select o.quota, sum(o.held)::int from fairlead.openings o
where o.tenant_id = %(tenant_id)s and o.expires_at > clock_timestamp() group by o.quota;

-- name: leave
delete from fairlead.openings where server_id = %(server_id)s;

-- name: forget
delete from fairlead.openings where expires_at < clock_timestamp() - interval '1 minute';
