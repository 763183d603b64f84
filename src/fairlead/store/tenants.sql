-- Tenants are named by slug or id, and are never deleted.

-- name: get
select id, slug, name, timezone, weight, max_running, quotas, paused_at, paused_by, pause_note, created_at
from fairlead.tenants where slug = %(tenant)s or id::text = lower(%(tenant)s);

-- name: every
select id, slug, name, timezone, weight, max_running, quotas, paused_at, paused_by, pause_note, created_at
from fairlead.tenants order by slug;

-- name: page
-- By slug, after the last one of the previous page.
select id, slug, name, timezone, weight, max_running, quotas, paused_at, paused_by, pause_note, created_at
from fairlead.tenants where slug > %(after)s order by slug limit %(limit)s;

-- name: change
update fairlead.tenants
set name = %(name)s, timezone = %(timezone)s, weight = %(weight)s, max_running = %(max_running)s,
    updated_at = clock_timestamp()
where id = %(id)s
    and (name, timezone, weight, max_running) is distinct from (%(name)s, %(timezone)s, %(weight)s, %(max_running)s)
returning id, slug, name, timezone, weight, max_running, quotas, paused_at, paused_by, pause_note, created_at;

-- name: ids
-- The ids of tenants by slug or id.
select asked.name, t.id
from unnest(%(names)s::text[]) as asked(name)
join fairlead.tenants t on t.slug = asked.name or t.id::text = lower(asked.name);

-- name: add
with tenant as (
    insert into fairlead.tenants (slug, name, timezone, weight, max_running)
    values (%(slug)s, %(name)s, %(timezone)s, %(weight)s, %(max_running)s)
    on conflict (slug) do nothing
    returning id, slug, name, timezone, weight, max_running, quotas, paused_at, paused_by, pause_note, created_at
), unused as (
    insert into fairlead.tenant_use (tenant_id) select id from tenant
)
select * from tenant;
