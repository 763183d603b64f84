-- The rows of one tenant, table by table, as the catalogue has them. <table>, <columns> and <where> are filled in.

-- name: tables
-- The tables of the schema without partitions, their columns, and the tables that their foreign keys refer to.
select c.relname as name,
    array(select a.attname from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' order by a.attnum) as columns,
    array(select distinct p.relname from pg_constraint k join pg_class p on p.oid = k.confrelid
        where k.conrelid = c.oid and k.contype = 'f' and k.confrelid <> c.oid) as parents
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relkind in ('r', 'p') and not c.relispartition
order by c.relname;

-- name: settings
-- What the text of a row depends on: checksums of two databases must agree.
select set_config('timezone', 'UTC', true), set_config('datestyle', 'ISO, MDY', true),
    set_config('intervalstyle', 'postgres', true), set_config('bytea_output', 'hex', true),
    set_config('extra_float_digits', '1', true), set_config('idle_in_transaction_session_timeout', '0', true);

-- name: mark
-- The transactions of a copy may take long, and change no other tenant: the moves of others do not wait for them. See
-- tenant_moves.sql, transactions.
select pg_advisory_xact_lock_shared(hashtextextended('fairlead tenant copy', 0));

-- name: count
select '<table>', count(*) from fairlead.<table> r where <where>

-- name: checksum
-- In any order of the rows.
select count(*), coalesce(sum(('x' || left(md5(row(<columns>)::text), 15))::bit(60)::bigint), 0)::text
from fairlead.<table> r where <where>

-- name: give
copy (select <columns> from fairlead.<table> r where <where>) to stdout (format binary)

-- name: take
copy fairlead.<table> (<names>) from stdin (format binary)

-- name: stage
create temporary table moved_rows on commit drop as select <names> from fairlead.<table> with no data

-- name: take_staged
copy pg_temp.moved_rows from stdin (format binary)

-- name: add_staged
insert into fairlead.<table> (<names>) select <names> from pg_temp.moved_rows

-- name: add_missing
-- Rows that can never be removed may be here from the tenant's last stay: only the others are added.
insert into fairlead.<table> (<names>)
select * from (select <names> from pg_temp.moved_rows except all select <names> from fairlead.<table> r where <where>) added

-- name: missing
-- How many of the rows that arrived are not here.
select count(*) from (select <names> from pg_temp.moved_rows except all select <names> from fairlead.<table> r where <where>) gone

-- name: unstage
drop table pg_temp.moved_rows

-- name: bound
select row_security_active('fairlead.<table>')

-- name: remove
delete from fairlead.<table> r where <where>

-- name: remove_some
delete from fairlead.<table> where ctid = any(array(select r.ctid from fairlead.<table> r where <where> limit %(limit)s))

-- name: tenant
select to_jsonb(t) from fairlead.tenants t where t.id = %(tenant_id)s

-- name: arrive
-- The tenant's row in its new cell, and whether it was here before. Returns no row if the tenant lives here, or has been
-- here later.
insert into fairlead.tenants as t (<names>)
select <names> from jsonb_populate_record(null::fairlead.tenants, %(row)s)
on conflict (id) do update set <changes>
where t.placement in ('moved', 'arriving') and t.epoch <= excluded.epoch
returning t.xmax <> 0

-- name: definitions
-- The definitions that the tenant's rows refer to, steps of runs by key, and those that are only for it and some others.
select to_jsonb(d) from fairlead.job_definitions d
where d.id = any(%(ids)s) or %(tenant_id)s = any(d.only_tenants)
    or d.key = any(array(select distinct s.definition_key from fairlead.workflow_steps s where s.tenant_id = %(tenant_id)s))
order by d.key

-- name: definition_ids
select distinct r.definition_id from fairlead.<table> r where <where>

-- name: add_definition
-- A definition that the cell does not know.
insert into fairlead.job_definitions (<names>)
select <names> from jsonb_populate_record(null::fairlead.job_definitions, %(row)s)
on conflict do nothing

-- name: admit
-- Lets the tenant use a definition that is only for some.
update fairlead.job_definitions set only_tenants = only_tenants || %(tenant_id)s::uuid
where id = any(%(ids)s) and not %(tenant_id)s::uuid = any(only_tenants)

-- name: shared_workflows
-- The workflows of all tenants that runs of the tenant were started from.
select distinct w.id, w.key, w.version, md5(w.spec::text) as spec
from fairlead.workflow_runs r join fairlead.workflows w on w.id = r.workflow_id
where r.tenant_id = %(tenant_id)s and w.tenant_id <> r.tenant_id

-- name: same_workflows
-- The same workflows in this cell, where they have other ids.
select o.id as old, w.id as new
from unnest(%(ids)s::uuid[], %(keys)s::text[], %(versions)s::int[], %(specs)s::text[]) as o(id, key, version, spec)
join fairlead.workflows w on w.is_shared and w.key = o.key and w.version = o.version and md5(w.spec::text) = o.spec
