-- The columns of definitions that are needed to create jobs, by key.
create or replace function fairlead.definitions_of(keys text[]) returns json language sql stable as $$
    select json_object_agg(d.key, json_build_array(
        d.id, d.key, d.kind, d.is_active, d.resource_pointer, d.default_priority, d.max_attempts, d.arg_schema::text,
        d.only_tenants))
    from fairlead.job_definitions d where d.key = any(keys)
$$;

revoke execute on function fairlead.definitions_of from public;
grant execute on function fairlead.definitions_of to fairlead_tenant;
