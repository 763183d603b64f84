-- How many more jobs may run in each limited scope of the pairs: by tenant id, definition id, 'definition tenant', and
-- host id. It locks rows of limit_locks until the claim ends, and only then counts the leases, in a separate statement (and
-- so with a new snapshot). A scope that other claims hold gets 0, and is added to `missed`.
--
-- A claim that locks all rows of a scope is the only claim there, so its count is exact. A limit of 64 or more also has 16
-- slots, so that claims do not exclude each other while it is far from full. A claim that holds a slot may take as many
-- jobs as the slot is worth, if by its count there is room for all slots together. The limit holds: consider the claim
-- that counted last. The leases that it could not see belong to holders of other slots. A slot's worth changes only under
-- the lock of all rows, so the limit holds while it is changed, too.
create or replace function fairlead.budgets(
    tenants uuid[], definitions uuid[], tenant_limits integer[], definition_limits integer[], pair_limits integer[],
    host uuid, host_limit integer, most_jobs integer, inout missed text[], out places jsonb
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    nobody constant uuid := '00000000-0000-0000-0000-000000000000';
    slots constant integer := 16;
    -- a claim takes at most half of the slots and leaves the rest to other claims
    most_slots constant integer := 8;
    -- the limited scopes, column by column
    names text[] := '{}';
    scopes text[] := '{}';
    ids uuid[] := '{}';
    others uuid[] := '{}';
    mosts integer[] := '{}';
    seen uuid[] := '{}';
    tenant uuid;
    definition uuid;
    share integer;
    number integer;
    has_slots_of text := coalesce(current_setting('fairlead.has_slots_of', true), '');
    -- the number of slots that this claim got; null in scopes where it needs all rows
    got integer[];
    -- the names of scopes of which this claim holds all rows
    held text[] := '{}';
begin
    -- Loops: one SQL statement for all this would take several times as long to start.
    if budgets.host is not null then
        names := array[budgets.host::text]; scopes := array['host'];
        ids := array[budgets.host]; others := array[nobody]; mosts := array[budgets.host_limit];
    end if;
    for i in 1 .. cardinality(budgets.tenants) loop
        tenant := budgets.tenants[i];
        definition := budgets.definitions[i];
        -- the pairs of a tenant are adjacent
        if budgets.tenant_limits[i] is not null and tenant is distinct from budgets.tenants[i - 1] then
            names := names || tenant::text; scopes := scopes || 'tenant'::text;
            ids := ids || tenant; others := others || nobody; mosts := mosts || budgets.tenant_limits[i];
        end if;
        if budgets.definition_limits[i] is not null and definition <> all(seen) then
            seen := seen || definition;
            names := names || definition::text; scopes := scopes || 'definition'::text;
            ids := ids || definition; others := others || nobody; mosts := mosts || budgets.definition_limits[i];
        end if;
        if budgets.pair_limits[i] is not null then
            names := names || (definition || ' ' || tenant); scopes := scopes || 'definition_tenant'::text;
            ids := ids || definition; others := others || tenant; mosts := mosts || budgets.pair_limits[i];
        end if;
    end loop;
    if names = '{}' then
        return;
    end if;

    got := array_fill(null::integer, array[cardinality(names)]);
    for i in 1 .. cardinality(names) loop
        share := mosts[i] / (4 * slots);
        -- a slot's worth limits a whole transaction: one that already holds slots of this scope needs all rows
        if share > 0 and scopes[i] <> 'host' and position(names[i] in has_slots_of) = 0
            and mosts[i] - slots * share >= fairlead.running_in(scopes[i], ids[i], others[i])
        then
            select count(*) into number from (
                select from fairlead.limit_locks k
                where k.scope = scopes[i] and k.scope_id = ids[i] and k.other_id = others[i] and k.slot > 0
                    and k.worth = share
                order by k.slot limit least(most_slots, 1 + (budgets.most_jobs - 1) / share)
                for update skip locked) k;
            if number > 0 then
                got[i] := number;
                perform set_config(
                    'fairlead.has_slots_of', concat_ws(',', current_setting('fairlead.has_slots_of', true), names[i]), true);
            elsif exists (
                select from fairlead.limit_locks k
                where k.scope = scopes[i] and k.scope_id = ids[i] and k.other_id = others[i] and k.slot > 0
                    and k.worth = share)
            then
                got[i] := 0;
            end if;
        end if;
    end loop;

    if array_position(got, null) is not null then
        -- inserting a row that another claim inserts now would wait for its commit: the try lock skips such rows
        insert into fairlead.limit_locks (scope, scope_id, other_id)
        select s.scope, s.id, s.other
        from unnest(scopes, ids, others) as s(scope, id, other)
        where case when not exists (
                select from fairlead.limit_locks k where k.scope = s.scope and k.scope_id = s.id and k.other_id = s.other)
            then pg_try_advisory_xact_lock(hashtextextended(concat_ws(' ', 'fairlead.limit_locks', s.scope, s.id, s.other), 0))
            end
        on conflict do nothing;

        select array_agg(k.name) into held from (
            select s.name
            from unnest(names, scopes, ids, others, got) as s(name, scope, id, other, got)
            join fairlead.limit_locks k
                on k.scope = s.scope and k.scope_id = s.id and k.other_id = s.other and k.slot = 0
            where s.got is null
            for update of k skip locked
        ) k;
        -- slots are inserted under the lock of row 0, so its holder sees all of them
        select array_agg(s.name) into held
        from unnest(names, scopes, ids, others) as s(name, scope, id, other)
        where s.name = any(held) and (
            select count(*) from fairlead.limit_locks k
            where k.scope = s.scope and k.scope_id = s.id and k.other_id = s.other and k.slot > 0
        ) = (
            select count(*) from (
                select from fairlead.limit_locks k
                where k.scope = s.scope and k.scope_id = s.id and k.other_id = s.other and k.slot > 0
                for update skip locked) k);
        insert into fairlead.limit_locks (scope, scope_id, other_id, slot, worth)
        select s.scope, s.id, s.other, n, s.most / (4 * slots)
        from unnest(names, scopes, ids, others, mosts) as s(name, scope, id, other, most), generate_series(1, slots) n
        where s.most >= 4 * slots and s.scope <> 'host' and s.name = any(held)
            and s.most / (4 * slots) is distinct from (
                select k.worth from fairlead.limit_locks k
                where k.scope = s.scope and k.scope_id = s.id and k.other_id = s.other and k.slot = 1)
        on conflict (scope, scope_id, other_id, slot) do update set worth = excluded.worth;
    end if;

    select jsonb_object_agg(s.name, coalesce(s.place, 0)),
        missed || coalesce(array_agg(s.name) filter (where s.place is null), '{}')
    into places, missed
    from (
        select s.name, case
            when s.got > 0 then case when s.allowed = s.most and s.most - s.most / (4 * slots) * slots >= s.running
                then s.got * (s.most / (4 * slots)) end
            when s.name = any(held) then greatest(0, s.allowed - s.running) end as place
        from (
            -- another process may have lowered this cell's part of a definition's limit before the locks were taken
            select s.*, fairlead.running_in(s.scope, s.id, s.other) as running,
                case s.scope when 'definition' then fairlead.definition_limit(s.id, s.most) else s.most end as allowed
            from unnest(names, scopes, ids, others, mosts, got) as s(name, scope, id, other, most, got)
            offset 0
        ) s
    ) s;
end
$$;

revoke execute on function fairlead.budgets from public;
