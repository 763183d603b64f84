-- Takes tokens for the jobs that start at `moment` from every bucket of rate_room that they belong to. Returns the jobs that
-- may start: where starts have a cost, tokens may not suffice for all that were chosen. A job that costs more than the
-- bucket holds may start when the bucket is full, and the bucket then stays empty for the longer.
create or replace function fairlead.spend_rates(ready_rows tid[], buckets jsonb, moment timestamptz) returns tid[]
language plpgsql volatile as $$
#variable_conflict use_column
declare
    kept tid[] := ready_rows;
    -- tokens left in each bucket
    tokens jsonb;
    job record;
    short text[];
begin
    if exists (select from jsonb_array_elements(buckets) b where b ->> 'cost' is not null) then
        select jsonb_object_agg(b.name, b.burst - greatest(0, date_part('epoch', k.full_at - moment)) * 1000000 / b.step)
        into tokens
        from jsonb_to_recordset(buckets) as b(name text, scope text, scope_id uuid, other_id uuid, burst float8, step float8)
        join fairlead.rate_buckets k
            on k.scope = b.scope and k.scope_id = b.scope_id and k.other_id = b.other_id
                and k.key = '00000000-0000-0000-0000-000000000000';
        kept := '{}';
        for job in
            select r.spot, c.costs
            from unnest(ready_rows) with ordinality as r(spot, n)
            cross join lateral (select * from fairlead.ready q where q.ctid = r.spot) q
            cross join lateral (
                select jsonb_object_agg(b.name, array[fairlead.cost_of(b.cost, j.payload), b.burst]) as costs
                from fairlead.job_records j,
                    jsonb_to_recordset(buckets) as b(name text, scope text, scope_id uuid, other_id uuid, burst float8, cost text)
                where j.id = q.job_id and case b.scope when 'system' then true when 'tenant' then b.scope_id = q.tenant_id
                    when 'definition' then b.scope_id = q.definition_id
                    else b.scope_id = q.definition_id and b.other_id = q.tenant_id end) c
            order by r.n
        loop
            select array_agg(c.name) into short
            from jsonb_each(job.costs) as c(name, cost)
            where (tokens ->> c.name)::float8 + 1e-9 < least((c.cost ->> 0)::float8, (c.cost ->> 1)::float8);
            if short is null then
                kept := kept || job.spot;
                select tokens || jsonb_object_agg(c.name, (tokens ->> c.name)::float8 - (c.cost ->> 0)::float8) into tokens
                from jsonb_each(job.costs) as c(name, cost);
            else
                -- those behind it wait, too: it would otherwise never find enough tokens
                update fairlead.rate_buckets k set needed = (job.costs -> b.name ->> 0)::float8
                from jsonb_to_recordset(buckets) as b(name text, scope text, scope_id uuid, other_id uuid)
                where b.name = any(short) and k.scope = b.scope and k.scope_id = b.scope_id and k.other_id = b.other_id
                    and k.key = '00000000-0000-0000-0000-000000000000';
                exit;
            end if;
        end loop;
    end if;
    if kept = '{}' then
        return null;
    end if;

    update fairlead.rate_buckets k
    set full_at = greatest(k.full_at, moment) + make_interval(secs => ceil(s.number * s.step) / 1000000),
        needed = case when kept = ready_rows then 1 else k.needed end
    from (
        select b.scope, b.scope_id, b.other_id, b.step, sum(case when b.cost is null then r.number
            else (
                select sum(fairlead.cost_of(b.cost, j.payload))
                from fairlead.ready q join fairlead.job_records j on j.id = q.job_id
                where q.ctid = any(kept) and q.tenant_id = r.tenant_id and q.definition_id = r.definition_id) end) as number
        from (
            select r.tenant_id, r.definition_id, count(*) as number from fairlead.ready r
            where r.ctid = any(kept) group by r.tenant_id, r.definition_id) r
        join jsonb_to_recordset(buckets) as b(scope text, scope_id uuid, other_id uuid, step float8, cost text)
            on case b.scope when 'system' then true when 'tenant' then b.scope_id = r.tenant_id
                when 'definition' then b.scope_id = r.definition_id
                else b.scope_id = r.definition_id and b.other_id = r.tenant_id end
        group by b.scope, b.scope_id, b.other_id, b.step) s
    where k.scope = s.scope and k.scope_id = s.scope_id and k.other_id = s.other_id
        and k.key = '00000000-0000-0000-0000-000000000000';
    return kept;
end
$$;

revoke execute on function fairlead.spend_rates from public;
