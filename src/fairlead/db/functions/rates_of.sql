-- The rates that apply to the jobs of a tenant and a definition, and when each allows the next start (null: now). With its
-- definer's rights, since a tenant does not see the buckets that it shares with others: it tells no more than these times.
create or replace function fairlead.rates_of(tenant uuid, definition uuid)
returns table (n integer, scope text, rate jsonb, opens_at timestamptz) language sql stable security definer
set search_path = pg_catalog, pg_temp as $$
    select one.n, one.scope, one.rate, fairlead.rate_opens_at(one.definition_id, one.tenant_id, one.rate, clock_timestamp())
    from fairlead.system s, fairlead.tenants t, fairlead.job_definitions d, lateral (values
        (1, 'system', null::uuid, null::uuid, s.rate), (2, 'tenant', null, t.id, t.rate),
        (3, 'definition', d.id, null, d.rate), (4, 'definition_tenant', d.id, t.id, d.rate_per_tenant))
        as one(n, scope, definition_id, tenant_id, rate)
    where t.id = rates_of.tenant and d.id = rates_of.definition and one.rate is not null
        -- of the caller's own tenant only, if it has one
        and coalesce(fairlead.tenant_of_session(), t.id) = t.id
$$;

revoke execute on function fairlead.rates_of from public;
grant execute on function fairlead.rates_of to fairlead_tenant;
