-- The directory of cells, in the home cell. Tenants without a row in tenant_cells live in the home cell.

-- name: every
select name, cell_id, url, schema_name, is_citus, is_draining, created_by, created_at
from fairlead.cells order by name;

-- name: own_id
select cell_id from fairlead.system;

-- name: add
insert into fairlead.cells (name, cell_id, url, schema_name, is_citus, created_by)
values (%(name)s, %(cell_id)s, %(url)s, %(schema_name)s, %(is_citus)s, %(created_by)s)
on conflict do nothing
returning name, cell_id, url, schema_name, is_citus, is_draining, created_by, created_at;

-- name: set_draining
update fairlead.cells set is_draining = %(is_draining)s where name = %(name)s and is_draining <> %(is_draining)s;

-- name: remove
delete from fairlead.cells c where c.name = %(name)s and c.url is not null
    and not exists (select from fairlead.tenant_cells t where t.cell = c.name)
    and not exists (select from fairlead.tenant_moves m where c.name in (m.source, m.target));

-- name: remove_lone_home
-- The home cell that is alone again needs no directory, unless a tenant has come back to it: its epoch must not begin anew.
delete from fairlead.cells c where c.url is null
    and not exists (select from fairlead.cells o where o.url is not null)
    and not exists (select from fairlead.tenant_cells) and not exists (select from fairlead.tenant_moves);

-- name: locate
-- The cells of tenants by slug or id; those without a row live in the home cell, or nowhere.
select t.tenant_id, t.slug, t.cell, t.epoch
from unnest(%(names)s::text[]) as asked(name)
join fairlead.tenant_cells t on t.slug = asked.name or t.tenant_id = fairlead.as_id(asked.name);

-- name: reserve
-- A slug is unique in all cells: the row is written before the tenant. Returns no row if the slug is taken.
insert into fairlead.tenant_cells (tenant_id, slug, cell)
select %(tenant_id)s, %(slug)s, %(cell)s
where not exists (select from fairlead.tenants t where t.slug = %(slug)s)
on conflict (slug) do nothing
returning tenant_id, slug, cell, epoch;

-- name: release
delete from fairlead.tenant_cells where tenant_id = %(tenant_id)s and epoch = 0;

-- name: numbers
-- The number of tenants of each cell that the directory names.
select cell, count(*) from fairlead.tenant_cells group by cell;

-- name: load
-- What a cell carries: its tenants, waiting and running jobs, and the run time of its last day.
select
    (select count(*) from fairlead.tenants t where t.placement in ('here', 'leaving') and t.slug <> 'global') as tenants,
    ((select coalesce(sum(l.queued), 0) from fairlead.count_levels l)
        + (select coalesce(sum(c.queued), 0) from fairlead.counts c where not c.leveled))::bigint as waiting,
    (select count(*) from fairlead.leases) as running,
    (select coalesce(sum(u.run_ms), 0) from fairlead.usage_hourly u
        where u.hour > clock_timestamp() - interval '1 day')::bigint as run_ms,
    (select coalesce(sum(pg_total_relation_size(c.oid)), 0) from pg_class c
        where c.relnamespace = (select n.oid from pg_namespace n where n.nspname = %(schema)s) and c.relkind in ('r', 'p')
    )::bigint as bytes;

-- name: tenant_loads
-- The tenants of a cell, those that used most run time in the last day first.
select t.id as tenant_id, t.slug, t.weight, coalesce(u.run_ms, 0)::bigint as run_ms, coalesce(u.runs, 0)::bigint as runs
from fairlead.tenants t left join (
    select tenant_id, sum(run_ms) as run_ms, sum(runs) as runs from fairlead.usage_hourly
    where hour > clock_timestamp() - interval '1 day' group by tenant_id) u on u.tenant_id = t.id
where t.placement = 'here' and t.slug <> 'global'
order by coalesce(u.run_ms, 0) desc, t.slug limit %(limit)s;
