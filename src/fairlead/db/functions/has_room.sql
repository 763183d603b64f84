-- Checks a pair's limits without locks, so that the walk does not select full pairs.
create or replace function fairlead.has_room(
    tenant uuid, tenant_most integer, definition uuid, definition_most integer, pair_most integer
) returns boolean language plpgsql stable as $$
begin
    if tenant_most is not null and tenant_most <= fairlead.running_in('tenant', tenant, null) then
        return false;
    elsif definition_most is not null
        and fairlead.definition_limit(definition, definition_most) <= fairlead.running_in('definition', definition, null) then
        return false;
    end if;
    return pair_most is null or pair_most > fairlead.running_in('definition_tenant', definition, tenant);
end
$$;

revoke execute on function fairlead.has_room from public;
