-- Makes the partitions of the coming days. A day whose rows already lie in audit_log_rest
-- stays there: rows are never moved.
create or replace function fairlead.prepare_audit_days(days integer) returns integer language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
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

revoke execute on function fairlead.prepare_audit_days(integer) from public;
