-- The next step of a claim's walk: the first pair after (after_tenant, after_definition) that has ready jobs, one of the
-- definitions, and a tenant that is neither paused nor full; and its first job. Lap 0 goes to the end, lap 1 from the
-- beginning to (place, edge). Skipped pairs cost nothing: the index ready_by_definition leads to each definition's tenants,
-- and a search for the next open tenant skips paused ones. A full tenant costs one search among the open ones.
create or replace function fairlead.next_pair(
    after_tenant uuid, after_definition uuid, inout lap integer, place uuid, edge uuid, definitions uuid[], full_tenants jsonb,
    out tenant_id uuid, out definition_id uuid, out priority integer, out scheduled_for timestamptz, out job_id uuid
) language plpgsql stable as $$
#variable_conflict use_column
declare
    nobody constant uuid := '00000000-0000-0000-0000-000000000000';
    last_one constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    -- at the first tenant, the definitions up to this one have been visited
    done_definition uuid := next_pair.after_definition;
    from_tenant uuid := next_pair.after_tenant;
    found_tenant uuid;
    found_definition uuid;
begin
    loop
        found_tenant := null;
        if from_tenant is not null then
            select n.tenant_id, d.id into found_tenant, found_definition
            from unnest(next_pair.definitions) as d(id)
            cross join lateral (
                (select r.tenant_id from fairlead.ready r
                 where d.id > done_definition and r.host_id is null
                    and r.priority > -2147483648 and r.definition_id = d.id and r.tenant_id >= from_tenant
                 order by r.definition_id, r.tenant_id limit 1)
                union all
                (select r.tenant_id from fairlead.ready r
                 where d.id <= done_definition and r.host_id is null
                    and r.priority > -2147483648 and r.definition_id = d.id and r.tenant_id > from_tenant
                 order by r.definition_id, r.tenant_id limit 1)
            ) n
            where (n.tenant_id, d.id) <= (
                case next_pair.lap when 0 then last_one else next_pair.place end,
                case next_pair.lap when 0 then last_one else next_pair.edge end)
            order by n.tenant_id, d.id limit 1;
        end if;
        if found_tenant is null then
            exit when next_pair.lap = 1;
            lap := 1;
            from_tenant := nobody;
        else
            exit when (next_pair.full_tenants ? found_tenant::text) is not true
                and exists (select from fairlead.tenants t where t.id = found_tenant and t.paused_at is null);
            select t.id into from_tenant from fairlead.tenants t
            where t.paused_at is null and t.id > found_tenant
                and (next_pair.full_tenants ? t.id::text) is not true
            order by t.id limit 1;
        end if;
        done_definition := nobody;
    end loop;
    if found_tenant is not null then
        tenant_id := found_tenant;
        definition_id := found_definition;
        select r.priority, r.scheduled_for, r.job_id into priority, scheduled_for, job_id from fairlead.ready r
        where r.host_id is null and r.tenant_id = found_tenant and r.definition_id = found_definition
        order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1;
    end if;
end
$$;

revoke execute on function fairlead.next_pair from public;
