-- Finds a tenant and a definition by name. refusal is null, a stable code, or 'definition_changed':
-- then `definition` is the version to validate against before the next call.
-- sealed_paths: where the payload's values must be sealed; null: the definition has no secrets, or the database does not
-- encrypt.
-- Written so that PostgreSQL inlines it.
create or replace function fairlead.resolve(tenant text, definition_key text, expected_version integer) returns table (tenant_id uuid, definition_id uuid, default_priority integer, max_attempts integer, refusal text, definition jsonb, by_key jsonb, sealed_paths text[]) language sql stable as $$
    select t.id, d.id, d.default_priority, d.max_attempts,
        case
            when t.id is null then 'tenant_unknown'
            when t.placement <> 'here' then case when t.placement = 'moved' then 'tenant_moved' else 'tenant_moving' end
            when d.id is null or not t.id = any(d.only_tenants) then 'definition_unknown'
            when not d.is_active then 'definition_inactive'
            when expected_version <> d.version then 'definition_changed'
        end,
        case when d.is_active and expected_version <> d.version then
            jsonb_build_object('key', d.key, 'version', d.version, 'arg_schema', d.arg_schema,
                'resource_pointer', d.resource_pointer)
        end,
        d.by_key,
        case when d.secret_paths <> '{}' and (select s.encrypted_since from fairlead.system s) is not null
            then d.secret_paths end
    from (select) as always
    left join fairlead.tenants t on t.id = coalesce(
        (select s.id from fairlead.tenants s where s.slug = tenant), fairlead.as_id(tenant))
    left join fairlead.job_definitions d on d.key = definition_key
$$;
grant execute on function fairlead.resolve to fairlead_tenant;
