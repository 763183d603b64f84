-- Of the jobs that a claim has chosen, those that fit into the free slots, in the order of their turns: rows of (round, place
-- of the tenant, place within the tenant, what is left of the tenant's turn after the job); null: in the order given. A job that does not
-- fit ends the list, also if smaller ones follow: slots that become free go to the job whose turn it is. `short_of` is how
-- many slots that job needs, `short_tenant` its tenant, and `short_credit` what is left of the tenant's turn.
create or replace function fairlead.fit_slots(
    inout ready_rows tid[], free integer, turns integer[], out short_of integer, out short_tenant uuid, out short_credit integer
) language plpgsql stable as $$
#variable_conflict use_column
declare
    chosen tid[] := fit_slots.ready_rows;
begin
    select array_agg(s.spot order by s.at) filter (where s.total <= fit_slots.free),
        (array_agg(s.slots order by s.at) filter (where s.total > fit_slots.free))[1],
        (array_agg(s.tenant_id order by s.at) filter (where s.total > fit_slots.free))[1],
        (array_agg(1 + fit_slots.turns[s.n][4] order by s.at) filter (where s.total > fit_slots.free))[1]
    into ready_rows, short_of, short_tenant, short_credit
    from (
        select o.spot, o.n, o.at, o.tenant_id, o.slots, sum(o.slots) over (order by o.at) as total
        from (
            select c.spot, c.n, r.tenant_id, d.slots, row_number() over (
                order by fit_slots.turns[c.n][1], fit_slots.turns[c.n][2], fit_slots.turns[c.n][3], c.n) as at
            from unnest(chosen) with ordinality as c(spot, n)
            join fairlead.ready r on r.ctid = c.spot
            join fairlead.job_definitions d on d.id = r.definition_id) o) s;
end
$$;

revoke execute on function fairlead.fit_slots from public;
