-- Enqueues a job from plain SQL, in any language. A refusal is an exception of class FL. The payload is
-- validated against the definition's schema when the job runs, since PostgreSQL cannot do it here.
create or replace function fairlead.enqueue(
    tenant text, definition text, payload jsonb default '{}', priority integer default null,
    scheduled_for timestamptz default null, max_attempts integer default null, dedupe_key text default null,
    correlation_id text default null, tags text[] default null, timeout interval default null,
    expires_in interval default null, unique_for interval default null, debounce jsonb default null,
    out job_id uuid, out deduplicated boolean
) language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
declare
    answer record;
    refusal text := case
        -- the library's default limits, since its settings are unknown here
        when octet_length(enqueue.payload::text) > 262144 then 'payload_too_large'
        when enqueue.payload @? '$.**{64} ? (@.type() == "object" || @.type() == "array")' then 'payload_too_deep'
        else fairlead.refusal_of(
            enqueue.payload, enqueue.priority, enqueue.scheduled_for, enqueue.max_attempts, enqueue.dedupe_key,
            enqueue.correlation_id)
    end;
    timeout_seconds constant double precision := extract(epoch from enqueue.timeout);
    expires_seconds constant double precision := extract(epoch from enqueue.expires_in);
    unique_seconds constant double precision := extract(epoch from enqueue.unique_for);
begin
    -- on Citus: perform fairlead.hold_placement();
    if refusal is null and not fairlead.options_fit(
            enqueue.tags, timeout_seconds, expires_seconds, unique_seconds, enqueue.debounce, enqueue.dedupe_key,
            enqueue.scheduled_for) then
        refusal := 'invalid_input';
    end if;
    if refusal is not null then
        raise exception 'not enqueued: %', refusal using errcode = 'FL001', detail = refusal,
            hint = 'The bounds of payload, priority, times, attempts, keys and tags are in the reference of errors.';
    end if;
    select o.job_id, o.outcome, o.waits, o.quota into answer
    from fairlead.enqueue_one(
        tenant => enqueue.tenant, definition_key => enqueue.definition, payload => enqueue.payload,
        priority => enqueue.priority, scheduled_for => enqueue.scheduled_for, max_attempts => enqueue.max_attempts,
        dedupe_key => enqueue.dedupe_key, correlation_id => enqueue.correlation_id, tags => enqueue.tags,
        timeout => ceil(timeout_seconds)::integer, expires_in => expires_seconds, unique_for => unique_seconds,
        debounce => enqueue.debounce) o;
    if answer.outcome = 'quota_exceeded' then
        raise exception 'not enqueued: the quota % of tenant % is used up: % of %',
            answer.quota ->> 'quota', enqueue.tenant, answer.quota ->> 'used', answer.quota ->> 'allowed'
            using errcode = 'FL001',
            detail = case answer.quota ->> 'quota' when 'queued_jobs' then 'queue_full' else 'quota_exceeded' end,
            hint = 'Try again when some jobs have run or are gone, or raise the quota: fairlead tenants set --quota';
    end if;
    if answer.outcome not in ('enqueued', 'deduplicated') then
        raise exception 'not enqueued: % (tenant %, definition %)',
            answer.outcome, enqueue.tenant, enqueue.definition
            using errcode = 'FL001', detail = answer.outcome,
            hint = case answer.outcome when 'encryption_key_missing'
                then 'The database encrypts secrets and has no key: enqueue this job with the library or the API, or give its '
                    'secrets as references, {"$secret": "name"}.' else '' end;
    end if;
    job_id := answer.job_id;
    deduplicated := answer.outcome = 'deduplicated';
    if answer.waits is not null then
        perform fairlead.notify_in_transaction(case when answer.waits then 'later' else 'ready' end);
    end if;
end
$$;

revoke execute on function fairlead.enqueue from public;
