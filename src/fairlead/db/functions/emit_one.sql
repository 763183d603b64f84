-- Stores one event for the dispatcher. outcome is 'emitted', or the refusal's code. The caller notifies.
create or replace function fairlead.emit_one(
    tenant text, name text, data jsonb, correlation_id text default null, occurred_at timestamptz default null,
    actor text default null, id uuid default null, caused_by uuid default null,
    out event_id uuid, out outcome text
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    whose uuid;
    refusal text;
    moment timestamptz := clock_timestamp();
begin
    outcome := case
        when emit_one.name is null or emit_one.name !~ '^[A-Za-z][A-Za-z0-9._:/@+-]{0,254}$' then 'event_invalid'
        when emit_one.name ~ '^(job|workflow|usage)\.' then 'event_reserved'
        else fairlead.refusal_of(emit_one.data, null, emit_one.occurred_at, null, null, emit_one.correlation_id)
    end;
    if outcome is not null then
        return;
    end if;
    perform fairlead.hold_tenant(emit_one.tenant);
    select r.tenant_id, r.refusal into whose, refusal from fairlead.resolve(emit_one.tenant, '', null) r;
    if refusal in ('tenant_unknown', 'tenant_moving', 'tenant_moved') then
        outcome := refusal;
        return;
    end if;
    event_id := coalesce(emit_one.id, fairlead.uuid7());
    insert into fairlead.events (
        id, tenant_id, name, data, correlation_id, occurred_at, recorded_at, created_by, caused_by, lineage)
    values (emit_one.event_id, whose, emit_one.name, emit_one.data, emit_one.correlation_id,
        coalesce(emit_one.occurred_at, moment), moment, coalesce(emit_one.actor, session_user), emit_one.caused_by,
        case when emit_one.caused_by is null then '{}' else fairlead.lineage_of(emit_one.caused_by) end);
    insert into fairlead.events_waiting (event_id, tenant_id, due_at, data_bytes)
    values (emit_one.event_id, whose, moment, pg_column_size(emit_one.data));
    insert into fairlead.audit_log (at, tenant_id, actor, action, resource_type, resource_id, details)
    values (moment, whose, coalesce(emit_one.actor, session_user), 'event_emitted', 'event', emit_one.event_id::text,
        jsonb_build_object('name', emit_one.name)
        || case when session_user <> current_user and current_user <> 'fairlead_tenant'
            then jsonb_build_object('role', session_user) else '{}' end);
    outcome := 'emitted';
end
$$;

revoke execute on function fairlead.emit_one from public;
grant execute on function fairlead.emit_one to fairlead_tenant;
