-- The settings of PostgreSQL.

-- name: facts
select
    current_setting('server_version') as version,
    current_setting('server_encoding') as encoding,
    current_setting('fsync') as fsync,
    current_setting('full_page_writes') as full_page_writes,
    current_setting('synchronous_commit') as synchronous_commit,
    clock_timestamp() as clock,
    current_user::text as role;

-- name: rights
-- The rights that the role needs and lacks.
select wanted.what
from (
    select 'usage on schema fairlead' as what, has_schema_privilege('fairlead', 'usage') as granted
    union all
    select r || ' on ' || c.oid::regclass, has_table_privilege(c.oid, r)
    from pg_class c, unnest(array['select', 'insert', 'update', 'delete']) r
    where c.relnamespace = 'fairlead'::regnamespace and c.relkind = 'r' and c.relname !~ '^(audit_log|migrations)'
        -- on Citus the owner has taken this right from itself, in place of a trigger
        and not (r = 'delete' and c.relname ~ '^(tenants|job_definitions)(_[0-9]+)?$' and fairlead.is_distributed())
    union all
    select 'execute on ' || p.oid::regprocedure, has_function_privilege(p.oid, 'execute')
    from pg_proc p where p.pronamespace = 'fairlead'::regnamespace and p.prorettype <> 'trigger'::regtype
) wanted
where not wanted.granted
order by 1;

-- name: audit_days
-- The number of days from today on that have a partition.
select count(*) from generate_series(0, 30) n
where to_regclass('fairlead.audit_log_' || to_char((timezone('UTC', clock_timestamp()))::date + n, 'YYYYMMDD')) is not null;

-- name: gate
select online, note, changed_by, changed_at from fairlead.system;

-- name: rate
select rate from fairlead.system;

-- name: set_rate
update fairlead.system set rate = %(rate)s where rate is distinct from %(rate)s::jsonb;

-- name: queue
-- Each tenant's part of the queue, by slug. Levels are sums of counts, running jobs are in leases, and a loose index scan
-- finds the tenant's oldest ready job: one probe for each definition and priority.
select t.id as tenant_id, t.slug as tenant, t.name, t.weight, t.max_running, t.paused_at,
    coalesce(c.queued, 0)::bigint as queued, coalesce(l.running, 0)::bigint as running,
    coalesce(c.failed, 0)::bigint as failed, coalesce(c.dead_letter, 0)::bigint as dead_letter,
    extract(epoch from clock_timestamp() - oldest.due)::float8 as oldest_queued_seconds
from (
    select * from fairlead.tenants where slug > %(after)s and placement in ('here', 'leaving')
    order by slug limit %(limit)s) t
left join lateral (
    select sum(c.queued) as queued, sum(c.failed) as failed, sum(c.dead_letter) as dead_letter
    from (
        select queued, failed, dead_letter from fairlead.count_levels where tenant_id = t.id
        union all
        select queued, failed, dead_letter from fairlead.counts where not leveled and tenant_id = t.id) c) c on true
left join lateral (select count(*) as running from fairlead.leases l where l.tenant_id = t.id) l on true
left join lateral (
    with recursive heads as (
        (select r.definition_id, r.priority, r.scheduled_for from fairlead.ready r
         where r.tenant_id = t.id and r.host_id is null
         order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for limit 1)
        union all
        select n.definition_id, n.priority, n.scheduled_for from heads h cross join lateral (
            select r.definition_id, r.priority, r.scheduled_for from fairlead.ready r
            where r.tenant_id = t.id and r.host_id is null
                and (r.definition_id, r.priority) > (h.definition_id, h.priority)
            order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for limit 1) n
    )
    -- a bound, in case every job has a different priority
    select min(scheduled_for) as due from (select scheduled_for from heads limit 1000) h) oldest on true
order by t.slug;

-- name: row_security
-- The faults of row-level security.
with wanted_role as (
    select name, exists (select from pg_roles r where r.rolname = name) as there
    from unnest(array['fairlead_system', 'fairlead_tenant']) name
), tenant_table as (
    select c.oid, c.relname, c.relrowsecurity and (c.relforcerowsecurity or fairlead.is_distributed()) as forced
    from pg_class c
    where c.relnamespace = 'fairlead'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
        and (c.relname in ('tenants', 'idempotency_keys') or exists (
            select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped))
)
select 'the role ' || name || ' is missing' as what from wanted_role where not there
union all
select 'this role is not a member of ' || name from wanted_role
where there and not pg_has_role(case when there then name end, 'member')
union all
select relname || ' has no forced row-level security' from tenant_table where not forced
union all
select relname || ' has no policy for ' || w.name
from tenant_table t cross join wanted_role w
where w.there and not exists (
        select from pg_policy p, unnest(p.polroles) of_role
        where p.polrelid = t.oid and of_role = (select r.oid from pg_roles r where r.rolname = w.name))
    -- a table without rights for tenants needs no policy
    and (w.name = 'fairlead_system' or has_table_privilege(
        case when w.there then w.name end, t.oid, 'select, insert, update, delete'))
order by 1;
