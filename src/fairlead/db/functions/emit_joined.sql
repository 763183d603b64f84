-- Emits an event for the library in the caller's own transaction: one JSON text in, one out.
create or replace function fairlead.emit_joined(event text) returns text language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
declare
    asked jsonb := emit_joined.event::jsonb;
    answer record;
begin
    -- on Citus: perform fairlead.hold_placement();
    select o.event_id, o.outcome into answer
    from fairlead.emit_one(
        tenant => asked ->> 'tenant', name => asked ->> 'name', data => asked -> 'data',
        correlation_id => asked ->> 'correlation_id', occurred_at => (asked ->> 'occurred_at')::timestamptz,
        actor => asked ->> 'actor', id => (asked ->> 'id')::uuid,
        caused_by => (asked ->> 'caused_by')::uuid) o;
    if answer.outcome = 'emitted' then
        perform fairlead.notify_in_transaction('event');
    end if;
    return jsonb_build_object('outcome', answer.outcome, 'event_id', answer.event_id)::text;
end
$$;

revoke execute on function fairlead.emit_joined from public;
