-- Emits an event from plain SQL. Returns its id, or raises an exception of class FL.
create or replace function fairlead.emit(
    tenant text, name text, data jsonb default '{}', correlation_id text default null,
    occurred_at timestamptz default null
) returns uuid language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
declare
    answer record;
    refusal text := case
        when octet_length(emit.data::text) > 262144 then 'payload_too_large'
        when emit.data @? '$.**{64} ? (@.type() == "object" || @.type() == "array")' then 'payload_too_deep'
    end;
begin
    -- on Citus: perform fairlead.hold_placement();
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
    perform fairlead.notify_in_transaction('event');
    return answer.event_id;
end
$$;

revoke execute on function fairlead.emit from public;
