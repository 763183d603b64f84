-- Whether a change of tables must run on another node: Citus distributes this schema, and this is not its coordinator.
create or replace function fairlead.needs_coordinator() returns boolean language plpgsql stable as $$
declare
    answer boolean := false;
begin
    if fairlead.is_distributed() then
        execute 'select not citus_is_coordinator()' into answer;
    end if;
    return answer;
end
$$;
