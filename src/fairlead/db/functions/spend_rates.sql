-- Takes tokens for the jobs that start at `moment` from every bucket of rate_room that they belong to. Returns the jobs that
-- may start: where starts have a cost, tokens may not suffice for all that were chosen, and go to the first of them in the
-- order of `in_turn`, which has these jobs and maybe others. A job that costs more than the bucket holds may start when the
-- bucket is full, and the bucket then stays empty for the longer.
create or replace function fairlead.spend_rates(
    ready_rows tid[], buckets jsonb, moment timestamptz, in_turn tid[]
) returns tid[] language plpgsql volatile as $$
#variable_conflict use_column
declare
    all_of constant uuid := '00000000-0000-0000-0000-000000000000';
    kept tid[] := ready_rows;
    -- tokens left in each bucket
    tokens jsonb;
    job record;
    short text[];
begin
    if exists (select from jsonb_array_elements(buckets) b where b -> 'rate' ->> 'cost' is not null) then
        select jsonb_object_agg(b.name, fairlead.tokens_in(k.tokens, k.counted_at, b.rate, moment))
        into tokens
        from jsonb_to_recordset(buckets) as b(name text, definition_id uuid, tenant_id uuid, rate jsonb)
        join fairlead.rate_buckets k
            on k.definition_id = b.definition_id and k.tenant_id = b.tenant_id and k.limit_key = all_of;
        kept := '{}';
        for job in
            select r.spot, c.costs
            from unnest(in_turn) with ordinality as r(spot, n)
            cross join lateral (select * from fairlead.ready q where q.ctid = r.spot) q
            cross join lateral (
                select jsonb_object_agg(b.name, array[
                    fairlead.cost_of(b.rate ->> 'cost', j.payload), (b.rate ->> 'burst')::float8]) as costs
                from fairlead.job_records j,
                    jsonb_to_recordset(buckets) as b(name text, definition_id uuid, tenant_id uuid, rate jsonb)
                where j.id = q.job_id and b.definition_id in (q.definition_id, all_of) and b.tenant_id in (q.tenant_id, all_of)) c
            where r.spot = any(ready_rows)
            order by r.n
        loop
            select array_agg(c.name) into short
            from jsonb_each(job.costs) as c(name, cost)
            where (tokens ->> c.name)::float8 + 1e-9 < least((c.cost ->> 0)::float8, (c.cost ->> 1)::float8);
            if short is null then
                kept := kept || job.spot;
                -- no bucket limits the jobs of some definitions
                if job.costs is not null then
                    select tokens || jsonb_object_agg(c.name, (tokens ->> c.name)::float8 - (c.cost ->> 0)::float8) into tokens
                    from jsonb_each(job.costs) as c(name, cost);
                end if;
            else
                -- those behind it wait, too: it would otherwise never find enough tokens
                update fairlead.rate_buckets k set needed = (job.costs -> b.name ->> 0)::float8
                from jsonb_to_recordset(buckets) as b(name text, definition_id uuid, tenant_id uuid)
                where b.name = any(short) and k.definition_id = b.definition_id and k.tenant_id = b.tenant_id
                    and k.limit_key = all_of;
                exit;
            end if;
        end loop;
    end if;
    if kept = '{}' then
        return null;
    end if;

    update fairlead.rate_buckets k
    set tokens = fairlead.tokens_in(k.tokens, k.counted_at, s.rate, moment) - s.number, counted_at = moment,
        needed = case when cardinality(kept) = cardinality(ready_rows) then 1 else k.needed end
    from (
        select b.definition_id, b.tenant_id, b.rate, sum(case when b.rate ->> 'cost' is null then r.number
            else (
                select sum(fairlead.cost_of(b.rate ->> 'cost', j.payload))
                from fairlead.ready q join fairlead.job_records j on j.id = q.job_id
                where q.ctid = any(kept) and q.tenant_id = r.tenant_id and q.definition_id = r.definition_id) end) as number
        from (
            select r.tenant_id, r.definition_id, count(*) as number from fairlead.ready r
            where r.ctid = any(kept) group by r.tenant_id, r.definition_id) r
        join jsonb_to_recordset(buckets) as b(definition_id uuid, tenant_id uuid, rate jsonb)
            on b.definition_id in (r.definition_id, all_of) and b.tenant_id in (r.tenant_id, all_of)
        group by b.definition_id, b.tenant_id, b.rate) s
    where k.definition_id = s.definition_id and k.tenant_id = s.tenant_id and k.limit_key = all_of;
    return kept;
end
$$;

revoke execute on function fairlead.spend_rates from public;
