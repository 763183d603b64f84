-- The client's IP address, if the transaction has set it.
create or replace function fairlead.ip_of_session() returns inet language sql stable parallel safe as $$
    select nullif(current_setting('fairlead.ip', true), '')::inet
$$;
grant execute on function fairlead.ip_of_session to fairlead_tenant;
