-- The field of the payload that names the resource ({"serverInstanceId": "lobby"}), for the audit log; empty if the
-- definition has no resource pointer or marks the field as secret.
create or replace function fairlead.resource_named(definition_id uuid, payload jsonb) returns jsonb language sql stable as $$
    select coalesce((
        select jsonb_build_object(path.steps[cardinality(path.steps)], resource_named.payload #>> path.steps)
        from fairlead.job_definitions d cross join lateral fairlead.path_of_pointer(d.resource_pointer) as path(steps)
        where d.id = resource_named.definition_id and d.resource_pointer is not null
            and resource_named.payload #>> path.steps is not null
            and not exists (
                select from unnest(d.secret_paths) as secret(path)
                where secret.path like '%*%' or starts_with(d.resource_pointer || '/', secret.path || '/'))), '{}')
$$;

revoke execute on function fairlead.resource_named from public;
grant execute on function fairlead.resource_named to fairlead_tenant;
