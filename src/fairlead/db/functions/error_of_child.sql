-- The error that a durable function gets for a child that ended like this; null for a success.
create or replace function fairlead.error_of_child(status fairlead.job_status, error jsonb, last_error text)
returns jsonb language sql stable as $$
    select case when error_of_child.status <> 'succeeded' then jsonb_build_object(
        'type', coalesce(error_of_child.error ->> 'type', initcap(error_of_child.status::text)),
        'message', coalesce(error_of_child.error ->> 'message', error_of_child.last_error, 'the child was ' || error_of_child.status),
        'status', error_of_child.status) end
$$;

revoke execute on function fairlead.error_of_child from public;
