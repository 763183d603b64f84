-- The tenants that are at their limit of running jobs, as the keys of a JSON object, which is fast to search; null if no
-- tenant has a limit. It counts all leases at once: with ten thousand full tenants, one count per tenant would take a second.
create or replace function fairlead.full_tenants() returns jsonb language plpgsql stable
set enable_seqscan = on set enable_hashjoin = on as $$
#variable_conflict use_column
begin
    if not exists (select from fairlead.tenants t where t.max_running is not null) then
        return null;
    end if;
    return (
        select jsonb_object_agg(t.id, true) from fairlead.tenants t
        left join (select l.tenant_id, count(*) as number from fairlead.leases l group by l.tenant_id) running
            on running.tenant_id = t.id
        where t.max_running is not null and coalesce(running.number, 0) >= t.max_running);
end
$$;

revoke execute on function fairlead.full_tenants from public;
