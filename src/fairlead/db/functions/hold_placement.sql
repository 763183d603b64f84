-- Keeps Citus from moving this schema until the transaction ends, and refuses the transaction if the schema is on another
-- node. The lock is the one that Citus takes for its own writes (ShareLock, 5); the move of a schema locks all its shards,
-- so one is enough. In a distributed schema `fairlead.tenants` below is the name of the shard, which ends with its id.
-- Elsewhere nothing calls this function. A transaction with an older snapshot cannot see a move: `is_checked_elsewhere` says
-- that the caller checks it in another transaction, after this one has the lock.
create or replace function fairlead.hold_placement(is_checked_elsewhere boolean default false) returns void language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
declare
    shard constant bigint := substring('fairlead.tenants' from '[0-9]+$');
begin
    if current_setting('transaction_isolation') <> 'read committed' and not is_checked_elsewhere then
        raise exception 'On Citus, jobs and events can join only transactions with the isolation level READ COMMITTED'
            using errcode = 'feature_not_supported',
            hint = 'An older snapshot would not show that Citus has moved the schema.';
    end if;
    perform lock_shard_metadata(5, array[shard]);
    if not is_checked_elsewhere and not exists (
            select from pg_dist_placement p join pg_dist_local_group l on l.groupid = p.groupid where p.shardid = shard) then
        raise exception 'Citus has moved the schema fairlead to another node' using errcode = 'FL002';
    end if;
end
$$;

revoke execute on function fairlead.hold_placement from public;
