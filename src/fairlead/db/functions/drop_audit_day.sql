-- Drops the oldest daily partition of the audit log that ended more than `keep_days` ago, and returns its name. One per
-- call, since dropping it locks the whole log. Not SECURITY DEFINER: only the log's owner may delete history. Entries in
-- audit_log_rest are removed by drop_audit_rest.
create or replace function fairlead.drop_audit_day(keep_days integer) returns text language plpgsql volatile as $$
declare
    oldest text;
    shard  bigint;
begin
    if fairlead.needs_coordinator() then
        -- The limit of waits for locks does not reach the coordinator: look first whether the log is free. The lock is
        -- given back at once, since the coordinator needs it, and with it the right to take it.
        execute 'select shardid from pg_catalog.pg_dist_shard where logicalrelid = $1'
        into shard using 'fairlead.audit_log'::regclass;
        perform set_config('citus.enable_manual_changes_to_shards', 'on', true);
        begin
            execute format('grant update on fairlead.%I to current_user', 'audit_log_' || shard);
            execute format('lock table fairlead.%I in access exclusive mode', 'audit_log_' || shard);
            raise exception using errcode = 'FL003';
        exception when sqlstate 'FL003' then null;
        end;
        return fairlead.run_on_coordinator(format('select fairlead.drop_audit_day(%s)', keep_days));
    end if;
    select c.relname into oldest
    from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'fairlead.audit_log'::regclass
        and c.relname ~ '^audit_log_[0-9]{8}$'
        and pg_catalog.pg_has_role(c.relowner, 'usage')
        and right(c.relname, 8) < to_char((timezone('UTC', clock_timestamp()))::date - keep_days, 'YYYYMMDD')
    order by c.relname limit 1;
    if oldest is not null then
        execute format('drop table fairlead.%I', oldest);
    end if;
    return oldest;
end
$$;

revoke execute on function fairlead.drop_audit_day from public;
