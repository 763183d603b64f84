-- The identity of this database: that of the cluster, which a standby shares, and the number of the database in it.
create or replace function fairlead.database_identity() returns text language sql stable
set search_path = pg_catalog, pg_temp as $$
    select concat(
        case when has_function_privilege('pg_control_system()', 'execute')
            then (select c.system_identifier from pg_control_system() c) end,
        '/', (select d.oid from pg_database d where d.datname = current_database()))
$$;

revoke execute on function fairlead.database_identity from public;
