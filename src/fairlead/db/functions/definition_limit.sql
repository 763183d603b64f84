-- How many jobs of a definition may run in this cell: its max_running, or, if there are several cells, this cell's part
-- of it, its allotment: see store/allotments.sql. A cell that has no part yet runs none.
create or replace function fairlead.definition_limit(definition uuid, most integer) returns integer
language plpgsql stable as $$
declare
    allotted integer;
begin
    if definition_limit.most is null then
        return null;
    end if;
    select a.number into allotted from fairlead.allotments a where a.definition_id = definition_limit.definition;
    if found then
        return least(definition_limit.most, allotted);
    end if;
    -- definitions of certain tenants are not divided: their tenants are usually in one cell
    return case when (select s.is_allotted from fairlead.system s) and exists (
            select from fairlead.job_definitions d where d.id = definition_limit.definition and d.only_tenants is null)
        then 0 else definition_limit.most end;
end
$$;

revoke execute on function fairlead.definition_limit from public;
