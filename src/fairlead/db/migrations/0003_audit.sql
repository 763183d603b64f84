-- The audit log only grows: updates, deletes and truncates are refused by triggers, and
-- retention drops whole days. No foreign keys: what it speaks of may be gone.

create table fairlead.audit_log (
    at            timestamptz not null default clock_timestamp(),
    tenant_id     uuid,
    actor         text not null,
    action        text not null,
    resource_type text not null,
    resource_id   text,
    details       jsonb not null default '{}',
    ip            inet
) partition by range (at);
create index audit_by_tenant on fairlead.audit_log (tenant_id, at);

create function fairlead.refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'the audit log cannot be changed (% on %)', lower(tg_op), tg_table_name
        using errcode = 'insufficient_privilege';
end
$$;

create trigger audit_rows_stay before update or delete on fairlead.audit_log
    for each row execute function fairlead.refuse_change();
create trigger audit_stays before truncate on fairlead.audit_log
    for each statement execute function fairlead.refuse_change();

-- Catches a day that nobody prepared, so that an audited change never fails for want of a partition.
create table fairlead.audit_log_rest partition of fairlead.audit_log default;
create trigger audit_stays before truncate on fairlead.audit_log_rest
    for each statement execute function fairlead.refuse_change();

-- Makes the partitions of the coming days. A day whose rows already lie in audit_log_rest
-- stays there: rows are never moved.
create function fairlead.prepare_audit_days(days integer) returns integer language plpgsql as $$
declare
    day  date;
    part text;
    made integer := 0;
begin
    perform pg_advisory_xact_lock(hashtextextended('fairlead.audit_log', 0));
    for day in select (timezone('UTC', clock_timestamp()))::date + n from generate_series(0, days) n loop
        part := 'audit_log_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass('fairlead.' || part) is not null;
        continue when exists (
            select from fairlead.audit_log_rest
            where at >= timezone('UTC', day::timestamp) and at < timezone('UTC', day::timestamp + interval '1 day'));
        execute format('create table fairlead.%I partition of fairlead.audit_log for values from (%L) to (%L)',
            part, timezone('UTC', day::timestamp), timezone('UTC', day::timestamp + interval '1 day'));
        execute format('create trigger audit_stays before truncate on fairlead.%I
            for each statement execute function fairlead.refuse_change()', part);
        made := made + 1;
    end loop;
    return made;
end
$$;
