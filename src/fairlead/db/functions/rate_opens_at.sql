-- When the next job may start by a rate: of a definition, a tenant, both, or (both null) the system. Null if it may now. It takes no lock, so a claim that follows may find
-- that another was faster.
create or replace function fairlead.rate_opens_at(
    definition uuid, tenant uuid, rate jsonb, moment timestamptz
) returns timestamptz language plpgsql stable as $$
declare
    all_of constant uuid := '00000000-0000-0000-0000-000000000000';
    opens timestamptz;
begin
    select fairlead.next_token_at(b.tokens, b.counted_at, rate, least(b.needed, (rate ->> 'burst')::float8)) into opens
    from fairlead.rate_buckets b
    where b.definition_id = coalesce(definition, all_of) and b.tenant_id = coalesce(tenant, all_of) and b.limit_key = all_of;
    return case when opens > moment then opens end;
end
$$;

revoke execute on function fairlead.rate_opens_at from public;
