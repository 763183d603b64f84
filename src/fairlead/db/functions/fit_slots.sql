-- Of the jobs that a claim has chosen, in this order, those that fit into the free slots. A job that does not fit ends the
-- list, also if smaller ones follow: slots that become free go to the job whose turn it is. `short_of` is how many slots
-- that job needs, and `short_tenant` its tenant.
create or replace function fairlead.fit_slots(
    inout ready_rows tid[], free integer, out short_of integer, out short_tenant uuid
) language plpgsql stable as $$
#variable_conflict use_column
declare
    chosen tid[] := fit_slots.ready_rows;
begin
    select array_agg(s.spot order by s.n) filter (where s.total <= fit_slots.free),
        (array_agg(s.slots order by s.n) filter (where s.total > fit_slots.free))[1],
        (array_agg(s.tenant_id order by s.n) filter (where s.total > fit_slots.free))[1]
    into ready_rows, short_of, short_tenant
    from (
        select c.spot, c.n, r.tenant_id, d.slots, sum(d.slots) over (order by c.n) as total
        from unnest(chosen) with ordinality as c(spot, n)
        join fairlead.ready r on r.ctid = c.spot
        join fairlead.job_definitions d on d.id = r.definition_id) s;
end
$$;

revoke execute on function fairlead.fit_slots from public;
