-- The user or token that the current transaction acts for, if set: written into the audit log.
create or replace function fairlead.principal_of_session() returns uuid language sql stable parallel safe as $$
    select nullif(current_setting('fairlead.principal_id', true), '')::uuid
$$;
grant execute on function fairlead.principal_of_session to fairlead_tenant;
