-- The advisory lock under which enqueues of a key take turns if the definition has another strategy than 'queue'.
create or replace function fairlead.key_turn_of(definition uuid, tenant uuid, limit_key uuid) returns bigint
language sql immutable parallel safe as $$
    select hashtextextended(concat_ws(' ', 'fairlead.limit_key', definition, tenant, limit_key), 0)
$$;

revoke execute on function fairlead.key_turn_of from public;
grant execute on function fairlead.key_turn_of to fairlead_tenant;
