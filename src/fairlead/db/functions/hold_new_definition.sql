-- Makes transactions that insert the same definition take turns. Its key and its id are both unique, and `on conflict`
-- covers only one of them: of two inserts at the same moment, one could fail on the other.
create or replace function fairlead.hold_new_definition(definition uuid) returns void language plpgsql volatile as $$
begin
    if not exists (select from fairlead.job_definitions d where d.id = definition) then
        perform pg_advisory_xact_lock(hashtextextended('fairlead.job_definitions ' || definition, 0));
    end if;
end
$$;

revoke execute on function fairlead.hold_new_definition from public;
