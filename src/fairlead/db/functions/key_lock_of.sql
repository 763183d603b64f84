-- The advisory lock under which a row of key_locks is inserted. Keys share a thousand locks, since the server has room for
-- some thousands.
create or replace function fairlead.key_lock_of(definition uuid, tenant uuid, limit_key uuid) returns bigint
language sql immutable parallel safe as $$
    select hashtextextended('fairlead.key_locks', 0)
        + (uuid_hash(definition) # uuid_hash(tenant) # uuid_hash(limit_key)) % 1024
$$;

revoke execute on function fairlead.key_lock_of from public;
