-- What makes jobs by itself: triggers, the events that set them off, and a record of every firing.
--
-- An event is stored before it is acted on; events_waiting holds those not yet dispatched, and whoever deletes a row
-- there dispatches that event, in the same transaction. A schedule's next instant is next_fire_at of its trigger;
-- whoever has locked that row fires it, and moves it on in the same transaction. trigger_firings admits one row for
-- each trigger and instant or event, so that not even a mistake in all of this fires twice.

create table fairlead.job_triggers (
    id                    uuid primary key default fairlead.uuid7(),
    tenant_id             uuid not null references fairlead.tenants,
    label                 text not null,
    is_enabled            boolean not null default true,
    trigger_type          text not null,
    event_name            text,
    filter                jsonb not null default '{}',
    cron_expr             text,
    timezone              text,            -- null: the tenant's
    every_seconds         integer,         -- 0: once, at start_at
    start_at              timestamptz,
    definition_id         uuid not null references fairlead.job_definitions on delete restrict,
    payload_template      jsonb not null default '{}',
    dedupe_window_seconds integer not null default 0,
    catch_up              text not null default 'skip',
    overlap               text not null default 'allow',
    -- of a schedule that an application's code keeps: whose it is, and its name there
    owner                 text,
    name                  text,
    next_fire_at          timestamptz,     -- null: never (events, disabled, deleted, over)
    last_fired_at         timestamptz,
    created_by            text,
    created_at            timestamptz not null default clock_timestamp(),
    updated_at            timestamptz not null default clock_timestamp(),
    deleted_at            timestamptz,
    constraint job_triggers_form check (
        case trigger_type
            when 'event' then event_name is not null and cron_expr is null and timezone is null
                and every_seconds is null and start_at is null and next_fire_at is null
            when 'schedule' then event_name is null and filter = '{}'
                and (cron_expr is not null and every_seconds is null and start_at is null
                    or cron_expr is null and timezone is null and every_seconds is not null and start_at is not null)
            else false
        end),
    constraint job_triggers_every check (every_seconds between 0 and 31622400),
    constraint job_triggers_window check (dedupe_window_seconds between 0 and 2592000),
    constraint job_triggers_catch_up check (catch_up in ('skip', 'one', 'all')),
    constraint job_triggers_overlap check (overlap in ('skip', 'allow')),
    constraint job_triggers_owner check ((owner is null) = (name is null)),
    constraint job_triggers_idle check (next_fire_at is null or (is_enabled and deleted_at is null))
) with (fillfactor = 70);
create index job_triggers_due on fairlead.job_triggers (next_fire_at) where next_fire_at is not null;
create index job_triggers_by_event on fairlead.job_triggers (tenant_id, event_name)
    where event_name is not null and is_enabled and deleted_at is null;
create index job_triggers_by_tenant on fairlead.job_triggers (tenant_id, id) where deleted_at is null;
create index job_triggers_by_definition on fairlead.job_triggers (definition_id) where deleted_at is null;
create unique index job_triggers_by_name on fairlead.job_triggers (tenant_id, owner, name)
    where owner is not null and deleted_at is null;

create table fairlead.events (
    id              uuid primary key default fairlead.uuid7(),
    tenant_id       uuid not null references fairlead.tenants,
    name            text not null,
    data            jsonb not null,
    correlation_id  text,
    occurred_at     timestamptz not null default clock_timestamp(),
    recorded_at     timestamptz not null default clock_timestamp(),
    dispatched_at   timestamptz,
    replay_of       uuid,
    only_trigger_id uuid,                  -- of a replay for one trigger
    -- where in the data triggers found secrets: hidden for good, whatever becomes of those triggers
    secret_paths    text[] not null default '{}',
    created_by      text
) with (fillfactor = 85);
create index events_by_tenant on fairlead.events (tenant_id, id);
create index events_by_age on fairlead.events (recorded_at);

create table fairlead.events_waiting (
    event_id  uuid primary key,
    tenant_id uuid not null,
    due_at    timestamptz not null default clock_timestamp(),
    tries     integer not null default 0
);
create index events_waiting_due on fairlead.events_waiting (due_at, event_id);

create table fairlead.trigger_firings (
    id           uuid primary key default fairlead.uuid7(),
    trigger_id   uuid not null references fairlead.job_triggers,
    tenant_id    uuid not null,
    slot         text not null,            -- the instant, the event's id, or 'manual:' and an id
    scheduled_at timestamptz,
    event_id     uuid,
    outcome      text not null,
    job_id       uuid,                     -- the job that was made, or that stands for it
    reason       text,                     -- a stable code
    detail       text,
    -- instants beyond what is caught up with share one record: how many (null: not counted), and the last of them
    covers       integer default 1,
    covers_until timestamptz,
    fired_at     timestamptz not null default clock_timestamp(),
    constraint trigger_firings_slot unique (trigger_id, slot),
    constraint trigger_firings_outcome check (
        case outcome
            when 'enqueued' then job_id is not null and reason is null
            when 'deduplicated' then job_id is not null
            when 'skipped' then reason is not null
            when 'failed' then reason is not null
            else false
        end)
);
create index trigger_firings_by_trigger on fairlead.trigger_firings (trigger_id, id);
create index trigger_firings_by_event on fairlead.trigger_firings (event_id) where event_id is not null;
create index trigger_firings_by_age on fairlead.trigger_firings (fired_at);

-- The same trigger and payload within so many seconds make one job: the holder of the window.
create table fairlead.dedupe_windows (
    tenant_id  uuid not null,
    hash       bytea not null,
    job_id     uuid not null,
    expires_at timestamptz not null,
    primary key (tenant_id, hash)
);
create index dedupe_windows_by_age on fairlead.dedupe_windows (expires_at);

insert into fairlead.duties (name) values ('firings'), ('events');

-- Policies

do $$
declare
    name text;
begin
    foreach name in array array['job_triggers', 'events', 'events_waiting', 'trigger_firings', 'dedupe_windows']
    loop
        execute format('alter table fairlead.%I enable row level security', name);
        execute format('alter table fairlead.%I force row level security', name);
        execute format('create policy system_rows on fairlead.%I to fairlead_system using (true) with check (true)', name);
        execute format(
            'create policy tenant_rows on fairlead.%I to fairlead_tenant '
            'using (tenant_id = (select fairlead.tenant_of_session())) '
            'with check (tenant_id = (select fairlead.tenant_of_session()))', name);
    end loop;
end
$$;
grant select, insert, update on fairlead.job_triggers to fairlead_tenant;
grant select, insert, update, delete on fairlead.dedupe_windows to fairlead_tenant;
grant select, insert on fairlead.events, fairlead.events_waiting, fairlead.trigger_firings to fairlead_tenant;

-- Ways in for events, as enqueue_one and its doors are for jobs.

create function fairlead.emit_one(
    tenant         text,
    name           text,
    data           jsonb,
    correlation_id text default null,
    occurred_at    timestamptz default null,
    actor          text default null,
    id             uuid default null,
    out event_id   uuid,
    out outcome    text
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    whose uuid;
    moment timestamptz := clock_timestamp();
begin
    outcome := case
        when emit_one.name is null or emit_one.name !~ '^[A-Za-z][A-Za-z0-9._:/@+-]{0,254}$' then 'event_invalid'
        else fairlead.refusal_of(emit_one.data, null, emit_one.occurred_at, null, null, emit_one.correlation_id)
    end;
    if outcome is not null then
        return;
    end if;
    select r.tenant_id into whose from fairlead.resolve(emit_one.tenant, '', null) r;
    if whose is null then
        outcome := 'tenant_unknown';
        return;
    end if;
    event_id := coalesce(emit_one.id, fairlead.uuid7());
    insert into fairlead.events (id, tenant_id, name, data, correlation_id, occurred_at, recorded_at, created_by)
    values (emit_one.event_id, whose, emit_one.name, emit_one.data, emit_one.correlation_id,
        coalesce(emit_one.occurred_at, moment), moment, coalesce(emit_one.actor, session_user));
    insert into fairlead.events_waiting (event_id, tenant_id, due_at) values (emit_one.event_id, whose, moment);
    insert into fairlead.audit_log (at, tenant_id, actor, action, resource_type, resource_id, details)
    values (moment, whose, coalesce(emit_one.actor, session_user), 'event_emitted', 'event', emit_one.event_id::text,
        jsonb_build_object('name', emit_one.name)
        || case when session_user <> current_user then jsonb_build_object('role', session_user) else '{}' end);
    outcome := 'emitted';
    perform pg_notify('fairlead', 'event');
end
$$;

-- The door for plain SQL: the event's id, or an exception of class FL.
create function fairlead.emit(
    tenant         text,
    name           text,
    data           jsonb default '{}',
    correlation_id text default null,
    occurred_at    timestamptz default null
) returns uuid language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    answer record;
    refusal text := case
        when octet_length(emit.data::text) > 262144 then 'payload_too_large'
        when emit.data @? '$.**{64} ? (@.type() == "object" || @.type() == "array")' then 'payload_too_deep'
    end;
begin
    if refusal is null then
        select o.event_id, o.outcome into answer
        from fairlead.emit_one(
            tenant => emit.tenant, name => emit.name, data => emit.data, correlation_id => emit.correlation_id,
            occurred_at => emit.occurred_at) o;
        refusal := nullif(answer.outcome, 'emitted');
    end if;
    if refusal is not null then
        raise exception 'not emitted: % (tenant %, event %)', refusal, emit.tenant, emit.name
            using errcode = 'FL001', detail = refusal,
            hint = 'The bounds of an event are in the reference of errors.';
    end if;
    return answer.event_id;
end
$$;

-- The library's door into somebody else's transaction: one JSON text in, one out.
create function fairlead.emit_joined(event text) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    asked jsonb := emit_joined.event::jsonb;
    answer record;
begin
    select o.event_id, o.outcome into answer
    from fairlead.emit_one(
        tenant => asked ->> 'tenant', name => asked ->> 'name', data => asked -> 'data',
        correlation_id => asked ->> 'correlation_id', occurred_at => (asked ->> 'occurred_at')::timestamptz,
        actor => asked ->> 'actor', id => (asked ->> 'id')::uuid) o;
    return jsonb_build_object('outcome', answer.outcome, 'event_id', answer.event_id)::text;
end
$$;

revoke execute on function fairlead.emit_one(text, text, jsonb, text, timestamptz, text, uuid) from public;
revoke execute on function fairlead.emit(text, text, jsonb, text, timestamptz) from public;
revoke execute on function fairlead.emit_joined(text) from public;
grant execute on function fairlead.emit_one(text, text, jsonb, text, timestamptz, text, uuid) to fairlead_tenant;
