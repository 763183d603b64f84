-- What PostgreSQL itself says about how it is run.

-- name: facts
select
    current_setting('server_version_num')::int as version_num,
    current_setting('server_version') as version,
    current_setting('server_encoding') as encoding,
    current_setting('fsync') as fsync,
    current_setting('full_page_writes') as full_page_writes,
    current_setting('synchronous_commit') as synchronous_commit,
    clock_timestamp() as clock,
    current_user::text as role;

-- name: rights
-- What the role lacks of what it needs; no rows means nothing.
select wanted.what
from (
    select 'usage on schema fairlead' as what, has_schema_privilege('fairlead', 'usage') as granted
    union all
    select r || ' on ' || c.oid::regclass, has_table_privilege(c.oid, r)
    from pg_class c, unnest(array['select', 'insert', 'update', 'delete']) r
    where c.relnamespace = 'fairlead'::regnamespace and c.relkind = 'r' and c.relname !~ '^(audit_log|migrations)'
    union all
    select 'execute on ' || p.oid::regprocedure, has_function_privilege(p.oid, 'execute')
    from pg_proc p where p.pronamespace = 'fairlead'::regnamespace and p.prorettype <> 'trigger'::regtype
) wanted
where not wanted.granted
order by 1;

-- name: audit_days
-- How many days from today on have a partition waiting for them.
select count(*) from generate_series(0, 30) n
where to_regclass('fairlead.audit_log_' || to_char((timezone('UTC', clock_timestamp()))::date + n, 'YYYYMMDD')) is not null;
