-- The tenant that the current transaction acts for; the row-level security policies use it.
create or replace function fairlead.tenant_of_session() returns uuid language sql stable parallel safe as $$
    select nullif(current_setting('fairlead.tenant_id', true), '')::uuid
$$;
grant execute on function fairlead.tenant_of_session to fairlead_tenant;
