-- Checks a pair's limits and rates without locks, so that the walk does not select pairs that nothing can start of. Null:
-- something can; else when a rate allows the next start, or 'infinity' if jobs have to end first.
create or replace function fairlead.closed_until(
    tenant uuid, tenant_most integer, tenant_rate jsonb, definition uuid, definition_most integer, definition_rate jsonb,
    pair_most integer, pair_rate jsonb, moment timestamptz
) returns timestamptz language plpgsql stable as $$
begin
    if tenant_most is not null and tenant_most <= fairlead.running_in('tenant', tenant, null) then
        return 'infinity';
    elsif definition_most is not null
        and fairlead.definition_limit(definition, definition_most) <= fairlead.running_in('definition', definition, null) then
        return 'infinity';
    elsif pair_most is not null and pair_most <= fairlead.running_in('definition_tenant', definition, tenant) then
        return 'infinity';
    elsif tenant_rate is null and definition_rate is null and pair_rate is null then
        return null;
    end if;
    return greatest(
        case when tenant_rate is not null
            then fairlead.rate_opens_at(null, tenant, tenant_rate, moment) end,
        case when definition_rate is not null
            then fairlead.rate_opens_at(definition, null, definition_rate, moment) end,
        case when pair_rate is not null
            then fairlead.rate_opens_at(definition, tenant, pair_rate, moment) end);
end
$$;

revoke execute on function fairlead.closed_until from public;
