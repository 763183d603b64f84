-- A first look at a pair's limits, without locks: a full pair must not take the place of an open one in the walk.
create or replace function fairlead.has_room(
    tenant uuid, tenant_most integer, definition uuid, definition_most integer, pair_most integer
) returns boolean language plpgsql stable as $$
begin
    return (tenant_most is null or tenant_most > (
            select count(*) from fairlead.leases l where l.tenant_id = has_room.tenant))
        and (definition_most is null or definition_most > (
            select count(*) from fairlead.leases l where l.definition_id = has_room.definition))
        and (pair_most is null or pair_most > (
            select count(*) from fairlead.leases l
            where l.definition_id = has_room.definition and l.tenant_id = has_room.tenant));
end
$$;

revoke execute on function fairlead.has_room(uuid, integer, uuid, integer, integer) from public;
