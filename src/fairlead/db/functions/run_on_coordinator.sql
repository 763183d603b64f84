-- Runs a statement on the coordinator of the Citus cluster, as its own transaction, and returns its value.
create or replace function fairlead.run_on_coordinator(statement text) returns text language plpgsql volatile as $$
declare
    answer record;
begin
    select c.success, c.result into answer from run_command_on_coordinator(run_on_coordinator.statement) c;
    if answer.success is not true then
        raise exception 'the coordinator of Citus did not run it: %', answer.result
            using errcode = case when answer.result like '%lock timeout%' then 'lock_not_available' else 'raise_exception' end;
    end if;
    return answer.result;
end
$$;

revoke execute on function fairlead.run_on_coordinator from public;
