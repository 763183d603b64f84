-- The audit log is append-only. An entry is written in the transaction of its change. Jobs that succeed together share a
-- row, so readers use fairlead.audit_entries, which has an entry for each.

-- name: write
-- Returns the tenant's slug and placement: a tenant that is being moved cannot be changed.
insert into fairlead.audit_log (tenant_id, actor, principal_id, action, resource_type, resource_id, details)
values (%(tenant_id)s, %(actor)s, coalesce(%(principal_id)s::uuid, fairlead.principal_of_session()), %(action)s,
    %(resource_type)s, %(resource_id)s, %(details)s)
returning (select array[t.slug, t.placement] from fairlead.tenants t where t.id = %(tenant_id)s and t.placement <> 'here');

-- name: recent
select at, tenant_id, actor, principal_id, action, resource_type, resource_id, details
from fairlead.audit_entries
where (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
order by at desc limit %(limit)s;

-- name: page
-- The newest entries of a scope, from a position on. Rows never move, so ctid (`spot`) orders rows of equal times.
-- The module replaces <scope>: one tenant, each tenant, or none; always by the index on tenant and time.
select a.at, a.tenant_id, a.actor, a.principal_id, a.action, a.resource_type, a.resource_id, a.details, host(a.ip) as ip,
    a.part, a.spot, a.n
from fairlead.audit_entries a
where <scope>
    and a.at > coalesce(%(after)s, '-infinity'::timestamptz) and a.at < coalesce(%(before)s, 'infinity'::timestamptz)
    and a.at <= coalesce(%(place_at)s, 'infinity'::timestamptz)
    and (%(place_at)s::timestamptz is null
        or (a.at, a.part, a.spot, a.n) < (%(place_at)s, %(place_part)s::bigint, %(place_spot)s::tid, %(place_n)s::bigint))
    and (%(actor)s::text is null or a.actor = %(actor)s)
    and (%(principal_id)s::uuid is null or a.principal_id = %(principal_id)s) and (%(action)s::text is null or a.action = %(action)s)
    and (%(actions)s::text[] is null or a.action = any(%(actions)s))
    and (%(actor_part)s::text is null or position(lower(%(actor_part)s) in lower(a.actor)) > 0)
    and (%(text)s::text is null or position(lower(%(text)s) in lower(a.details::text)) > 0)
    and (%(resource_type)s::text is null or a.resource_type = %(resource_type)s)
    and (%(resource_id)s::text is null or a.resource_id = %(resource_id)s)
order by a.at desc, a.part desc, a.spot desc, a.n desc limit %(limit)s

-- name: of_tenant
select at, tenant_id, (select t.slug from fairlead.tenants t where t.id = page.tenant_id) as tenant, actor,
    principal_id, action, resource_type, resource_id, details, ip, part, spot::text as spot, n
from (<of one>) page order by at desc, part desc, page.spot desc, n desc;

-- name: of_all
select at, tenant_id, (select t.slug from fairlead.tenants t where t.id = page.tenant_id) as tenant, actor,
    principal_id, action, resource_type, resource_id, details, ip, part, spot::text as spot, n
from (
    -- the entries of a tenant that has moved away stay, since none can be removed; its new cell has them, too
    select page.* from fairlead.tenants t cross join lateral (<of each>) page where t.placement in ('here', 'leaving')
    union all
    (<of none>)) page
order by at desc, part desc, page.spot desc, n desc limit %(limit)s;

-- name: horizon_of_tenant
-- The time of the entry that is `look` entries before a time.
select a.at from fairlead.audit_log a
where a.tenant_id = %(tenant_id)s and a.at <= coalesce(%(until)s, 'infinity'::timestamptz)
order by a.at desc offset %(look)s limit 1;

-- name: horizon_of_all
-- As for one tenant; the tenants share `look`.
select max(f.at) from (
    select f.at from fairlead.tenants t cross join lateral (
        select a.at from fairlead.audit_log a
        where a.tenant_id = t.id and a.at <= coalesce(%(until)s, 'infinity'::timestamptz)
        order by a.at desc offset (select greatest(100, %(look)s / greatest(count(*), 1)) from fairlead.tenants) limit 1) f
    union all
    (select a.at from fairlead.audit_log a
     where a.tenant_id is null and a.at <= coalesce(%(until)s, 'infinity'::timestamptz)
     order by a.at desc offset %(look)s limit 1)) f;

-- name: about
-- The entries about one resource. No index has the resource, so it searches the first and the last `look` entries of the
-- tenant in the resource's lifetime, which bounds its cost.
with near as (
    (select a.* from fairlead.audit_entries a
     where a.tenant_id = %(tenant_id)s and a.at >= %(since)s and a.at <= coalesce(%(until)s, 'infinity'::timestamptz)
     order by a.at limit %(look)s)
    union all
    (select a.* from fairlead.audit_entries a
     where a.tenant_id = %(tenant_id)s and a.at >= %(since)s and a.at <= coalesce(%(until)s, 'infinity'::timestamptz)
     order by a.at desc limit %(look)s)
), found as (
    select distinct on (n.part, n.spot, n.n) n.* from near n
    where n.resource_type = %(resource_type)s and n.resource_id = %(resource_id)s
)
select at, tenant_id, actor, principal_id, action, resource_type, resource_id, details
from found order by at desc limit %(limit)s;

-- name: clock
select clock_timestamp();

-- name: oldest
-- The oldest entries of a scope after a position, for exports; at or after `since`, before `until`. <scope> as in `page`.
select a.at, a.tenant_id, a.actor, a.principal_id, a.action, a.resource_type, a.resource_id, a.details, host(a.ip) as ip,
    a.part, a.spot, a.n
from fairlead.audit_entries a
where <scope>
    and a.at >= %(since)s and a.at < %(until)s
    and (%(place_at)s::timestamptz is null
        or (a.at, a.part, a.spot, a.n) > (%(place_at)s, %(place_part)s::bigint, %(place_spot)s::tid, %(place_n)s::bigint))
order by a.at, a.part, a.spot, a.n limit %(limit)s

-- name: oldest_of_tenant
select at, tenant_id, (select t.slug from fairlead.tenants t where t.id = page.tenant_id) as tenant, actor,
    principal_id, action, resource_type, resource_id, details, ip, part, spot::text as spot, n
from (<of one>) page order by at, part, page.spot, n;

-- name: oldest_of_all
select at, tenant_id, (select t.slug from fairlead.tenants t where t.id = page.tenant_id) as tenant, actor,
    principal_id, action, resource_type, resource_id, details, ip, part, spot::text as spot, n
from (
    select page.* from fairlead.tenants t cross join lateral (<of each>) page where t.placement in ('here', 'leaving')
    union all
    (<of none>)) page
order by at, part, page.spot, n limit %(limit)s;
