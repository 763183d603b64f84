-- The host that a job is for: the given host, the host of the given resource, or the host of the resource that the payload
-- names at the definition's resource pointer. Null: any worker may run it. A refusal is a stable code.
create or replace function fairlead.target_of(
    tenant_id uuid, definition_id uuid, payload jsonb, host_id uuid, resource_id uuid,
    out target_host uuid, out target_resource uuid, out refusal text
) language plpgsql stable as $$
#variable_conflict use_column
declare
    about record;
    named text;
begin
    select d.resource_pointer, d.kind into about from fairlead.job_definitions d where d.id = target_of.definition_id;
    target_resource := target_of.resource_id;
    if target_resource is null and about.resource_pointer is not null then
        named := target_of.payload #>> fairlead.path_of_pointer(about.resource_pointer);
        select r.id into target_resource from fairlead.resources r
        where r.tenant_id = target_of.tenant_id and r.id = fairlead.as_id(named);
        if target_resource is null then
            -- by name, if only one resource has it
            select min(r.id::text)::uuid into target_resource from fairlead.resources r
            where r.tenant_id = target_of.tenant_id and r.name = named having count(*) = 1;
        end if;
        if target_resource is null then
            refusal := 'resource_unknown';
            return;
        end if;
    end if;
    if target_resource is not null then
        select r.host_id into target_host from fairlead.resources r
        where r.id = target_resource and r.tenant_id = target_of.tenant_id;
        refusal := case
            when target_host is null then 'resource_unknown'
            when target_of.host_id <> target_host then 'resource_elsewhere'
        end;
    elsif target_of.host_id is not null then
        select h.id into target_host from fairlead.hosts h
        where h.id = target_of.host_id and h.tenant_id = target_of.tenant_id;
        refusal := case when target_host is null then 'host_unknown' end;
    elsif about.kind = 'host' then
        refusal := 'host_required';
    end if;
end
$$;
grant execute on function fairlead.target_of to fairlead_tenant;
