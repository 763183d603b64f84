-- Removes up to `most` entries of audit_log_rest that are older than `keep_days` whole days: those of days that had no
-- partition. It disables the log's trigger, or on Citus grants itself the right, for this transaction only. Not SECURITY DEFINER: only the log's owner may
-- delete history.
create or replace function fairlead.drop_audit_rest(keep_days integer, most integer) returns bigint language plpgsql volatile as $$
declare
    since constant timestamptz :=
        timezone('UTC', ((timezone('UTC', clock_timestamp()))::date - keep_days)::timestamp);
    gone bigint;
    spread constant boolean := fairlead.is_distributed();
begin
    if not exists (
            select from pg_catalog.pg_class c
            where c.oid = 'fairlead.audit_log_rest'::regclass and pg_catalog.pg_has_role(c.relowner, 'usage'))
        or not exists (select from fairlead.audit_log_rest r where r.at < since) then
        return 0;
    end if;
    if spread then
        grant delete on fairlead.audit_log_rest to current_user;
    else
        alter table fairlead.audit_log_rest disable trigger audit_rows_stay;
    end if;
    delete from fairlead.audit_log_rest where ctid = any(array(
        select r.ctid from fairlead.audit_log_rest r where r.at < since limit most));
    get diagnostics gone = row_count;
    if spread then
        revoke delete on fairlead.audit_log_rest from current_user;
    else
        alter table fairlead.audit_log_rest enable trigger audit_rows_stay;
    end if;
    return gone;
end
$$;

revoke execute on function fairlead.drop_audit_rest from public;
