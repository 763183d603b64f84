-- Tenants are named by slug or id, and are never deleted.

-- name: get
select id, slug, name, timezone, weight, max_running, rate, quotas, addresses, paused_at, paused_by, pause_note, created_at, placement,
    moved_to
from fairlead.tenants where slug = %(tenant)s or id = fairlead.as_id(%(tenant)s);

-- name: every
select id, slug, name, timezone, weight, max_running, rate, quotas, addresses, paused_at, paused_by, pause_note, created_at
from fairlead.tenants where placement in ('here', 'leaving') order by slug;

-- name: page
-- By slug, after the last one of the previous page.
select id, slug, name, timezone, weight, max_running, rate, quotas, addresses, paused_at, paused_by, pause_note, created_at
from fairlead.tenants where slug > %(after)s and placement in ('here', 'leaving') order by slug limit %(limit)s;

-- name: change
update fairlead.tenants
set name = %(name)s, timezone = %(timezone)s, weight = %(weight)s, max_running = %(max_running)s,
    rate = %(rate)s, updated_at = clock_timestamp()
where id = %(id)s
    and (name, timezone, weight, max_running, rate)
        is distinct from (%(name)s, %(timezone)s, %(weight)s, %(max_running)s, %(rate)s::jsonb)
returning id, slug, name, timezone, weight, max_running, rate, quotas, addresses, paused_at, paused_by, pause_note, created_at;

-- name: placement
select placement from fairlead.tenants where id = %(id)s;

-- name: ids
-- The ids of tenants by slug or id.
select asked.name, t.id, t.placement, t.moved_to
from unnest(%(names)s::text[]) as asked(name)
join fairlead.tenants t on t.slug = asked.name or t.id = fairlead.as_id(asked.name);

-- name: add
with tenant as (
    insert into fairlead.tenants (id, slug, name, timezone, weight, max_running, rate)
    select coalesce(%(id)s::uuid, fairlead.uuid7()), %(slug)s, %(name)s, %(timezone)s, %(weight)s, %(max_running)s,
        %(rate)s::jsonb
    -- in the home cell: another cell may have a tenant of this slug
    where not exists (select from fairlead.tenant_cells c where c.slug = %(slug)s)
    on conflict (slug) do nothing
    returning id, slug, name, timezone, weight, max_running, rate, quotas, addresses, paused_at, paused_by, pause_note, created_at
), unused as (
    insert into fairlead.tenant_use (tenant_id) select id from tenant
)
select * from tenant;

-- name: absent
select id from fairlead.tenants where placement in ('arriving', 'moved');

-- name: set_addresses
-- Returns no row if the tenant is not in this cell.
update fairlead.tenants set addresses = %(addresses)s::text[], updated_at = clock_timestamp()
where id = %(id)s and placement = 'here'
returning id, slug, name, timezone, weight, max_running, rate, quotas, addresses, paused_at, paused_by, pause_note, created_at;
