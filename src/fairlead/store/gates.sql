-- A gate is closed if paused_at is set (for the system: if it is not online). The claim itself checks gates.
-- `hold` queries lock a row as an update does (no key update), so foreign key checks do not wait.

-- name: hold_system
select 'system' as kind, null::uuid as id, 'system' as name, null::uuid as tenant_id,
    case when not online then changed_at end as paused_at, case when not online then changed_by end as paused_by,
    case when not online then note end as note
from fairlead.system for no key update;

-- name: hold_tenant
select 'tenant' as kind, id, slug as name, id as tenant_id, paused_at, paused_by, pause_note as note
from fairlead.tenants where slug = %(name)s or id = fairlead.as_id(%(name)s) for no key update;

-- name: hold_definition
select 'definition' as kind, id, key as name, null::uuid as tenant_id, paused_at, paused_by, pause_note as note
from fairlead.job_definitions where key = %(name)s for no key update;

-- name: hold_host
-- Hosts of different tenants may share a name: the caller refuses more than one row.
select 'host' as kind, id, name, tenant_id, paused_at, paused_by, pause_note as note
from fairlead.hosts
where (name = %(name)s or id = fairlead.as_id(%(name)s))
    and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
order by id for no key update;

-- name: close_system
update fairlead.system
set online = false, changed_by = %(actor)s, note = case when online then %(note)s else coalesce(%(note)s, note) end,
    changed_at = case when online then clock_timestamp() else changed_at end
returning changed_at, changed_by, note;

-- name: open_system
update fairlead.system set online = true, changed_by = %(actor)s, note = %(note)s, changed_at = clock_timestamp();

-- name: close_tenant
update fairlead.tenants
set paused_at = coalesce(paused_at, clock_timestamp()), paused_by = %(actor)s,
    pause_note = coalesce(%(note)s, pause_note), updated_at = clock_timestamp()
where id = %(id)s returning paused_at, paused_by, pause_note;

-- name: open_tenant
update fairlead.tenants set paused_at = null, paused_by = null, pause_note = null, updated_at = clock_timestamp()
where id = %(id)s;

-- name: close_definition
update fairlead.job_definitions
set paused_at = coalesce(paused_at, clock_timestamp()), paused_by = %(actor)s,
    pause_note = coalesce(%(note)s, pause_note), version = version + 1, updated_at = clock_timestamp()
where id = %(id)s returning paused_at, paused_by, pause_note;

-- name: open_definition
update fairlead.job_definitions
set paused_at = null, paused_by = null, pause_note = null, version = version + 1, updated_at = clock_timestamp()
where id = %(id)s;

-- name: close_host
update fairlead.hosts
set paused_at = coalesce(paused_at, clock_timestamp()), paused_by = %(actor)s,
    pause_note = coalesce(%(note)s, pause_note), updated_at = clock_timestamp()
where id = %(id)s returning paused_at, paused_by, pause_note;

-- name: open_host
update fairlead.hosts set paused_at = null, paused_by = null, pause_note = null, updated_at = clock_timestamp()
where id = %(id)s;
