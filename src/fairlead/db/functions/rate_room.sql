-- How many more jobs may start now in each scope that has a rate: `room`, as budgets has it, lowered to that. It locks the
-- buckets of these scopes until the claim ends, and the starts are later than that: all starts of a bucket are in the order
-- of their times, so no window has more of them than the rate allows. A bucket that another claim holds gives nothing, and its
-- name is added to `missed`. `buckets` is for spend_rates. `opens_at` is when the first empty bucket has a token.
--
-- A rate is {"limit": 100, "per_seconds": 60, "burst": 5}: a bucket of 5 tokens, into which 100 flow in 60 seconds. With a
-- "cost", a JSON pointer, a start takes as many tokens as the payload says there, instead of one.
create or replace function fairlead.rate_room(
    tenants uuid[], definitions uuid[], system_rate jsonb, inout missed text[], inout room jsonb,
    out buckets jsonb, out opens_at timestamptz
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    all_of constant uuid := '00000000-0000-0000-0000-000000000000';
begin
    select jsonb_agg(jsonb_build_object(
        'name', s.name, 'definition_id', s.definition_id, 'tenant_id', s.tenant_id, 'rate', s.rate))
    into buckets
    from (
        select 'system' as name, all_of as definition_id, all_of as tenant_id, system_rate as rate
        union all
        select t.id::text, all_of, t.id, t.rate
        from fairlead.tenants t where t.id = any(rate_room.tenants)
        union all
        select d.id::text, d.id, all_of, d.rate
        from fairlead.job_definitions d where d.id = any(rate_room.definitions)
        union all
        select d.id || ' ' || p.tenant_id, d.id, p.tenant_id, d.rate_per_tenant
        from unnest(rate_room.tenants, rate_room.definitions) as p(tenant_id, definition_id)
        join fairlead.job_definitions d on d.id = p.definition_id
    ) s
    where s.rate is not null;
    if buckets is null then
        return;
    end if;

    -- inserting a row that another claim inserts now would wait for its commit: the try lock skips such rows
    insert into fairlead.rate_buckets (definition_id, tenant_id)
    select b.definition_id, b.tenant_id
    from jsonb_to_recordset(buckets) as b(definition_id uuid, tenant_id uuid)
    where case when not exists (
            select from fairlead.rate_buckets k
            where k.definition_id = b.definition_id and k.tenant_id = b.tenant_id and k.limit_key = all_of)
        then pg_try_advisory_xact_lock(
            hashtextextended(concat_ws(' ', 'fairlead.rate_buckets', b.definition_id, b.tenant_id), 0))
        end
    on conflict do nothing;

    with held as materialized (
        select b.name, b.rate, k.tokens, k.counted_at, k.needed
        from jsonb_to_recordset(buckets) as b(name text, definition_id uuid, tenant_id uuid, rate jsonb)
        join fairlead.rate_buckets k
            on k.definition_id = b.definition_id and k.tenant_id = b.tenant_id and k.limit_key = all_of
        for update of k skip locked
    ), clock as materialized (
        -- after the last lock
        select clock_timestamp() as now from (select count(*) from held) locked
    ), tokens as (
        select h.name, greatest(0, floor(
                fairlead.tokens_in(h.tokens, h.counted_at, h.rate, c.now) + 1e-9))::integer as number,
            fairlead.next_token_at(
                h.tokens, h.counted_at, h.rate, least(h.needed, (h.rate ->> 'burst')::float8)) as opens_at
        from held h, clock c
    )
    select (select min(t.opens_at) from tokens t where t.number < 1), rate_room.missed || array(
            select b ->> 'name' from jsonb_array_elements(buckets) b
            where not exists (select from tokens t where t.name = b ->> 'name')),
        (
            select jsonb_object_agg(a.name, a.number) from (
                select a.name, min(a.number) as number from (
                    select r.key as name, r.value::integer as number from jsonb_each_text(coalesce(rate_room.room, '{}')) r
                    union all
                    select b ->> 'name', coalesce(t.number, 0)
                    from jsonb_array_elements(buckets) b left join tokens t on t.name = b ->> 'name'
                ) a group by a.name) a)
    into opens_at, missed, room;
end
$$;

revoke execute on function fairlead.rate_room from public;
