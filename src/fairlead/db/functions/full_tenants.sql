-- The tenants that are at their limit of running jobs or at their rate, as the keys of a JSON object, which is fast to
-- search; null if no tenant has either. It counts all leases at once: with ten thousand full tenants, one count per tenant
-- would take a second. `opens_at` is when the first of the rates allows a start.
create or replace function fairlead.full_tenants(moment timestamptz, out tenants jsonb, out opens_at timestamptz)
language plpgsql stable set enable_seqscan = on set enable_hashjoin = on as $$
#variable_conflict use_column
begin
    if not exists (select from fairlead.tenants t where t.max_running is not null)
        and not exists (select from fairlead.tenants t where t.rate is not null)
    then
        return;
    end if;
    select jsonb_object_agg(f.id, true), min(f.opens_at) into tenants, opens_at
    from (
        select t.id, null::timestamptz as opens_at from fairlead.tenants t
        left join (select l.tenant_id, count(*) as number from fairlead.leases l group by l.tenant_id) running
            on running.tenant_id = t.id
        where t.max_running is not null and coalesce(running.number, 0) >= t.max_running
        union all
        select t.id, opens.at from fairlead.tenants t
        cross join lateral (
            select fairlead.rate_opens_at(null, t.id, t.rate, full_tenants.moment) as at offset 0) opens
        where t.rate is not null and opens.at is not null
    ) f;
end
$$;

revoke execute on function fairlead.full_tenants from public;
