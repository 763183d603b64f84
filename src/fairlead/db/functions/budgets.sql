-- The budgets of the pairs: null where nothing limits one, else how many more may run. The limits' own rows are
-- locked first and stay locked to the end of the claim; only then are the leases counted, in a statement (and so a
-- snapshot) of its own. A scope that another claim holds has no budget now, and is added to `missed`.
create or replace function fairlead.budgets(
    tenants uuid[], definitions uuid[], host uuid, inout missed text[],
    out tenant_left jsonb, out definition_left jsonb, out pair_left jsonb, out host_left integer
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    wanted text[];
    held text[];
begin
    tenant_left := '{}'; definition_left := '{}'; pair_left := '{}';
    select array_agg(distinct s.scope || ' ' || s.scope_id || ' ' || s.other_id) into wanted
    from unnest(budgets.tenants, budgets.definitions) as p(tenant_id, definition_id)
    join fairlead.tenants t on t.id = p.tenant_id
    join fairlead.job_definitions d on d.id = p.definition_id
    cross join lateral (values
        ('tenant', t.id, '00000000-0000-0000-0000-000000000000'::uuid, t.max_running),
        ('definition', d.id, '00000000-0000-0000-0000-000000000000', d.max_running),
        ('definition_tenant', d.id, t.id, d.max_running_per_tenant)
    ) as s(scope, scope_id, other_id, most)
    where s.most is not null;
    if budgets.host is not null then
        wanted := wanted || ('host ' || budgets.host || ' 00000000-0000-0000-0000-000000000000');
    end if;
    if wanted is null then
        return;
    end if;

    -- a row that somebody else is making now would be waited for, to the end of his transaction: leave it to him
    insert into fairlead.limit_locks (scope, scope_id, other_id)
    select split_part(w, ' ', 1), split_part(w, ' ', 2)::uuid, split_part(w, ' ', 3)::uuid
    from unnest(wanted) w
    where case when not exists (
            select from fairlead.limit_locks k where k.scope = split_part(w, ' ', 1)
                and k.scope_id = split_part(w, ' ', 2)::uuid and k.other_id = split_part(w, ' ', 3)::uuid)
        then pg_try_advisory_xact_lock(hashtextextended('fairlead.limit_locks ' || w, 0)) end
    on conflict do nothing;

    select array_agg(k.scope || ' ' || k.scope_id || ' ' || k.other_id) into held
    from (
        select k.scope, k.scope_id, k.other_id
        from fairlead.limit_locks k
        join unnest(wanted) w on k.scope = split_part(w, ' ', 1)
            and k.scope_id = split_part(w, ' ', 2)::uuid and k.other_id = split_part(w, ' ', 3)::uuid
        order by k.scope, k.scope_id, k.other_id
        for update of k skip locked
    ) k;
    missed := missed || array(select w from unnest(wanted) w where held is null or w <> all(held));

    select coalesce(jsonb_object_agg(t.id, case when 'tenant ' || t.id || ' 00000000-0000-0000-0000-000000000000' = any(held)
            then greatest(0, t.max_running - (select count(*) from fairlead.leases l where l.tenant_id = t.id))
            else 0 end), '{}')
    into tenant_left
    from fairlead.tenants t where t.id = any(budgets.tenants) and t.max_running is not null;

    select coalesce(jsonb_object_agg(d.id, case when 'definition ' || d.id || ' 00000000-0000-0000-0000-000000000000' = any(held)
            then greatest(0, d.max_running - (select count(*) from fairlead.leases l where l.definition_id = d.id))
            else 0 end), '{}')
    into definition_left
    from fairlead.job_definitions d where d.id = any(budgets.definitions) and d.max_running is not null;

    select coalesce(jsonb_object_agg(p.definition_id || ' ' || p.tenant_id,
            case when 'definition_tenant ' || p.definition_id || ' ' || p.tenant_id = any(held)
            then greatest(0, d.max_running_per_tenant - (
                select count(*) from fairlead.leases l
                where l.definition_id = p.definition_id and l.tenant_id = p.tenant_id))
            else 0 end), '{}')
    into pair_left
    from (select distinct u.tenant_id, u.definition_id
        from unnest(budgets.tenants, budgets.definitions) as u(tenant_id, definition_id)) p
    join fairlead.job_definitions d on d.id = p.definition_id
    where d.max_running_per_tenant is not null;

    if budgets.host is not null then
        select case when 'host ' || h.id || ' 00000000-0000-0000-0000-000000000000' = any(held)
            then greatest(0, h.max_running - (select count(*) from fairlead.leases l where l.host_id = h.id)) else 0 end
        into host_left from fairlead.hosts h where h.id = budgets.host;
    end if;
end
$$;

revoke execute on function fairlead.budgets(uuid[], uuid[], uuid, text[]) from public;
