-- How many jobs run in a limited scope, in the calling statement's snapshot. One statement for each kind of scope: a
-- combined statement would take longer to start than to count.
create or replace function fairlead.running_in(scope text, scope_id uuid, other_id uuid) returns bigint
language plpgsql stable as $$
declare
    number bigint;
begin
    if running_in.scope = 'tenant' then
        select count(*) into number from fairlead.leases l where l.tenant_id = running_in.scope_id;
    elsif running_in.scope = 'definition' then
        select count(*) into number from fairlead.leases l where l.definition_id = running_in.scope_id;
    elsif running_in.scope = 'definition_tenant' then
        select count(*) into number from fairlead.leases l
        where l.definition_id = running_in.scope_id and l.tenant_id = running_in.other_id;
    else
        select count(*) into number from fairlead.leases l where l.host_id = running_in.scope_id;
    end if;
    return number;
end
$$;

revoke execute on function fairlead.running_in from public;
