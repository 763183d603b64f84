-- Drops the oldest day of the audit log that ended more than `keep_days` ago, and names it. One a call: while it goes,
-- the whole log is locked. Not SECURITY DEFINER: history goes by the will of its owner only, for others there is
-- nothing to drop. What lies in audit_log_rest goes by drop_audit_rest.
create or replace function fairlead.drop_audit_day(keep_days integer) returns text language plpgsql volatile as $$
declare
    oldest text;
begin
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
