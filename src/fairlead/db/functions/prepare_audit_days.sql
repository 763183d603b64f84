-- Makes the partitions of the coming days. Each is made apart and then attached, which locks neither the log against
-- writers nor against readers of single days: only audit_log_rest, for a moment. Of a day whose first rows already lie
-- in audit_log_rest, which stay there, the partition begins with the next hour.
create or replace function fairlead.prepare_audit_days(days integer) returns integer language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
declare
    day    date;
    part   text;
    starts timestamptz;
    ends   timestamptz;
    made   integer := 0;
begin
    perform pg_advisory_xact_lock(hashtextextended('fairlead.audit_log', 0));
    for day in select (timezone('UTC', clock_timestamp()))::date + n from generate_series(0, days) n loop
        part := 'audit_log_' || to_char(day, 'YYYYMMDD');
        starts := timezone('UTC', day::timestamp);
        ends := timezone('UTC', day::timestamp + interval '1 day');
        continue when to_regclass('fairlead.' || part) is not null;
        if exists (select from fairlead.audit_log_rest where at >= starts and at < ends) then
            starts := greatest(starts, date_trunc('hour', clock_timestamp(), 'UTC') + interval '1 hour');
            continue when starts >= ends
                or exists (select from fairlead.audit_log_rest where at >= starts and at < ends);
        end if;
        execute format('create table fairlead.%I (like fairlead.audit_log including all)', part);
        -- so that attaching need not read it
        execute format('alter table fairlead.%I add constraint of_its_day check (at >= %L and at < %L)',
            part, starts, ends);
        execute format('create trigger audit_stays before truncate on fairlead.%I
            for each statement execute function fairlead.refuse_change()', part);
        execute format('alter table fairlead.audit_log attach partition fairlead.%I for values from (%L) to (%L)',
            part, starts, ends);
        execute format('alter table fairlead.%I drop constraint of_its_day', part);
        made := made + 1;
    end loop;
    return made;
end
$$;

revoke execute on function fairlead.prepare_audit_days from public;
