-- The hash of the value by which a definition limits its jobs; null if the payload has no such value.
create or replace function fairlead.limit_key_of(by_key jsonb, payload jsonb) returns uuid
language sql immutable parallel safe as $$
    select case when by_key is not null
        then md5((payload #> fairlead.path_of_pointer(by_key ->> 'pointer'))::text)::uuid end
$$;
grant execute on function fairlead.limit_key_of to fairlead_tenant;
