-- Creates the partitions of the coming days. Each is created as a table and then attached, which blocks neither writers
-- nor readers of single days, and locks only audit_log_rest, for a moment. If audit_log_rest already has rows of a day,
-- they stay there, and the day's partition begins with the next hour. On Citus, only the coordinator changes tables.
create or replace function fairlead.prepare_audit_days(days integer) returns integer language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
declare
    day    date;
    part   text;
    starts timestamptz;
    ends   timestamptz;
    made   integer := 0;
    spread constant boolean := fairlead.is_distributed();
begin
    if fairlead.needs_coordinator() then
        return fairlead.run_on_coordinator(format('select fairlead.prepare_audit_days(%s)', days))::integer;
    end if;
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
        -- with this check, attaching does not scan the table
        execute format('alter table fairlead.%I add constraint of_its_day check (at >= %L and at < %L)',
            part, starts, ends);
        if not spread then
            execute format('create trigger audit_stays before truncate on fairlead.%I
                for each statement execute function fairlead.refuse_change()', part);
        end if;
        execute format('alter table fairlead.audit_log attach partition fairlead.%I for values from (%L) to (%L)',
            part, starts, ends);
        execute format('alter table fairlead.%I drop constraint of_its_day', part);
        if spread then
            execute format('revoke update, delete, truncate on fairlead.%I from current_user, fairlead_system', part);
            execute format('alter table fairlead.%I replica identity full', part);
        end if;
        made := made + 1;
    end loop;
    return made;
end
$$;

revoke execute on function fairlead.prepare_audit_days from public;
