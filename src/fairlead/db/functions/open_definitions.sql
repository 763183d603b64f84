-- The definitions that a claim may take jobs of now: served, not paused, with ready jobs, not at their own limit
-- or rate, and for a worker with these labels and slots. Null if they are many: a search for each of them at every step would then take longer than to pass over all other pairs.
create or replace function fairlead.open_definitions(
    served uuid[], served_pairs text[], moment timestamptz, labels jsonb, most_slots integer
) returns uuid[] language plpgsql stable as $$
#variable_conflict use_column
declare
    many constant integer := 32;
    open uuid[];
begin
    open := array(
        select d.id from fairlead.job_definitions d
        where (open_definitions.served is null or d.id = any(open_definitions.served)
                or d.id = any(array(select split_part(p, ' ', 1)::uuid from unnest(open_definitions.served_pairs) p)))
            and d.paused_at is null
            and (d.requires is null or d.requires <@ open_definitions.labels)
            and (open_definitions.most_slots is null or d.slots <= open_definitions.most_slots)
            -- not `exists`: for that the planner may read all of ready
            and (
                select true from fairlead.ready r
                where r.host_id is null and r.priority > -2147483648 and r.definition_id = d.id limit 1)
            and (d.rate is null
                or fairlead.rate_opens_at(d.id, null, d.rate, open_definitions.moment) is null)
            and (d.max_running is null or fairlead.definition_limit(d.id, d.max_running) > fairlead.running_in('definition', d.id, null))
        limit many + 1);
    return case when cardinality(open) <= many then open end;
end
$$;

revoke execute on function fairlead.open_definitions from public;
