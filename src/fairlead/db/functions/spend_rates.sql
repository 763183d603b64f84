-- Takes a token for each job that starts at `moment` from every bucket of rate_room that it belongs to.
create or replace function fairlead.spend_rates(ready_rows tid[], buckets jsonb, moment timestamptz) returns void
language plpgsql volatile as $$
#variable_conflict use_column
begin
    update fairlead.rate_buckets k
    set full_at = greatest(k.full_at, spend_rates.moment)
        + make_interval(secs => ceil(s.number * s.step) / 1000000)
    from (
        select b.scope, b.scope_id, b.other_id, b.step, sum(r.number) as number
        from (
            select r.tenant_id, r.definition_id, count(*) as number from fairlead.ready r
            where r.ctid = any(spend_rates.ready_rows) group by r.tenant_id, r.definition_id) r
        join jsonb_to_recordset(spend_rates.buckets) as b(scope text, scope_id uuid, other_id uuid, step float8)
            on case b.scope when 'system' then true when 'tenant' then b.scope_id = r.tenant_id
                when 'definition' then b.scope_id = r.definition_id
                else b.scope_id = r.definition_id and b.other_id = r.tenant_id end
        group by b.scope, b.scope_id, b.other_id, b.step) s
    where k.scope = s.scope and k.scope_id = s.scope_id and k.other_id = s.other_id
        and k.key = '00000000-0000-0000-0000-000000000000';
end
$$;

revoke execute on function fairlead.spend_rates from public;
