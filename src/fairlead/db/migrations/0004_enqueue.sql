-- One way in for single jobs. enqueue_one does the work; the two doors for other people's
-- roles and transactions are enqueue (plain SQL; raises) and enqueue_joined (the library's;
-- answers, so that a refusal never aborts the caller's transaction). Nothing here opens a
-- subtransaction, sets a parameter that outlives the call, or locks a row that others read.

-- Who and what is meant, and why not. refusal is null, a stable code, or 'definition_changed':
-- then `definition` is what to validate against before calling again.
-- Written so that PostgreSQL inlines it.
create function fairlead.resolve(tenant text, definition_key text, expected_version integer)
returns table (
    tenant_id uuid, definition_id uuid, default_priority integer, max_attempts integer,
    refusal text, definition jsonb
) language sql stable as $$
    select t.id, d.id, d.default_priority, d.max_attempts,
        case
            when t.id is null then 'tenant_unknown'
            when d.id is null then 'definition_unknown'
            when not d.is_active then 'definition_inactive'
            when expected_version <> d.version then 'definition_changed'
        end,
        case when d.is_active and expected_version <> d.version then
            jsonb_build_object('key', d.key, 'version', d.version, 'arg_schema', d.arg_schema)
        end
    from (select) as always
    left join fairlead.tenants t on t.id = coalesce(
        (select s.id from fairlead.tenants s where s.slug = tenant),
        case when tenant ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then tenant::uuid end)
    left join fairlead.job_definitions d on d.key = definition_key
$$;

-- What could not be read back, or would break whoever reads it, is refused here too, for those who ask without the
-- library: null, or the code of a refusal. The library's own bounds are settings, and mostly narrower.
create function fairlead.refusal_of(
    payload jsonb, priority integer, scheduled_for timestamptz, max_attempts integer, dedupe_key text,
    correlation_id text
) returns text language sql immutable parallel safe as $$
    select case
        when jsonb_typeof(payload) is distinct from 'object' then 'payload_invalid'
        when octet_length(payload::text) > 16777216 then 'payload_too_large'
        when payload @? '$.**{500} ? (@.type() == "object" || @.type() == "array")' then 'payload_too_deep'
        -- beyond 1024 bits, and so beyond every float
        when payload @? '$.** ? (@.type() == "number" && (@ > 1.797693134862315907e308 || @ < -1.797693134862315907e308))'
            then 'payload_not_json'
        when abs(priority) > 1000000
            or scheduled_for < '1970-01-01 00:00:00+00' or scheduled_for >= '3000-01-01 00:00:00+00'
            or max_attempts not between 1 and 1000
            or length(dedupe_key) not between 1 and 1048576
            or length(correlation_id) not between 1 and 255
            then 'invalid_input'
    end
$$;

-- outcome is 'enqueued', 'deduplicated' (job_id is then the active job that holds the key),
-- or what resolve refused with. A given id makes a repeated call fail on the primary key
-- instead of enqueueing twice.
create function fairlead.enqueue_one(
    tenant           text,
    definition_key   text,
    payload          jsonb,
    priority         integer default null,
    scheduled_for    timestamptz default null,
    max_attempts     integer default null,
    dedupe_key       text default null,
    correlation_id   text default null,
    source           fairlead.job_source default 'manual',
    source_ref       text default null,
    parent_id        uuid default null,
    actor            text default null,
    id               uuid default null,
    expected_version integer default null,
    out job_id       uuid,
    out outcome      text,
    out definition   jsonb,
    out tenant_id    uuid,
    out definition_id uuid
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    about record;
    moment timestamptz := clock_timestamp();
    hash bytea;
begin
    select * into about
    from fairlead.resolve(enqueue_one.tenant, enqueue_one.definition_key, enqueue_one.expected_version);
    if about.refusal is not null then
        outcome := about.refusal;
        definition := about.definition;
        return;
    end if;

    job_id := coalesce(enqueue_one.id, fairlead.uuid7());
    tenant_id := about.tenant_id;
    definition_id := about.definition_id;
    if enqueue_one.dedupe_key is not null then
        hash := sha256(convert_to(enqueue_one.dedupe_key, 'UTF8'));
        loop
            -- waits for an uncommitted holder of the key, so the answer below is final
            insert into fairlead.active_keys (tenant_id, key_hash, job_id)
                values (about.tenant_id, hash, enqueue_one.job_id)
                on conflict do nothing;
            exit when found;
            select k.job_id into enqueue_one.job_id from fairlead.active_keys k
                where k.tenant_id = about.tenant_id and k.key_hash = hash;
            if found then
                outcome := 'deduplicated';
                return;
            end if;
            -- it ended in between: the key is free again
            job_id := coalesce(enqueue_one.id, fairlead.uuid7());
        end loop;
    end if;

    insert into fairlead.jobs (
        id, tenant_id, definition_id, parent_id, priority, max_attempts, scheduled_for, queued_at,
        source, source_ref, dedupe_key, correlation_id, created_by, payload)
    values (
        enqueue_one.job_id, about.tenant_id, about.definition_id, enqueue_one.parent_id,
        coalesce(enqueue_one.priority, about.default_priority),
        coalesce(enqueue_one.max_attempts, about.max_attempts),
        coalesce(enqueue_one.scheduled_for, moment), moment,
        enqueue_one.source, enqueue_one.source_ref, enqueue_one.dedupe_key, enqueue_one.correlation_id,
        coalesce(enqueue_one.actor, session_user), enqueue_one.payload);

    if enqueue_one.scheduled_for > moment then
        insert into fairlead.later (job_id, tenant_id, definition_id, priority, due_at)
        values (enqueue_one.job_id, about.tenant_id, about.definition_id,
            coalesce(enqueue_one.priority, about.default_priority), enqueue_one.scheduled_for);
    else
        insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for)
        values (enqueue_one.job_id, about.tenant_id, about.definition_id,
            coalesce(enqueue_one.priority, about.default_priority), coalesce(enqueue_one.scheduled_for, moment));
    end if;

    insert into fairlead.counts (tenant_id, definition_id, minute, queued)
    values (about.tenant_id, about.definition_id, date_trunc('minute', moment), 1);

    insert into fairlead.audit_log (at, tenant_id, actor, action, resource_type, resource_id, details)
    values (moment, about.tenant_id, coalesce(enqueue_one.actor, session_user), 'job_created', 'job',
        enqueue_one.job_id::text,
        jsonb_build_object('definition_key', enqueue_one.definition_key)
        -- through a door: which role it really was, whoever it says it is
        || case when session_user <> current_user then jsonb_build_object('role', session_user) else '{}' end);

    outcome := 'enqueued';
    -- PostgreSQL sends equal notifications of one transaction once
    perform pg_notify('fairlead', case when enqueue_one.scheduled_for > moment then 'later' else 'ready' end);
end
$$;

-- The door for plain SQL, in any language: refusals are exceptions of class FL. The payload is
-- checked against the definition's schema when the job runs, since PostgreSQL cannot do it here.
create function fairlead.enqueue(
    tenant         text,
    definition     text,
    payload        jsonb default '{}',
    priority       integer default null,
    scheduled_for  timestamptz default null,
    max_attempts   integer default null,
    dedupe_key     text default null,
    correlation_id text default null,
    out job_id       uuid,
    out deduplicated boolean
) language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    answer record;
    refusal text := case
        -- the library's default bounds, for lack of its settings
        when octet_length(enqueue.payload::text) > 262144 then 'payload_too_large'
        when enqueue.payload @? '$.**{64} ? (@.type() == "object" || @.type() == "array")' then 'payload_too_deep'
        else fairlead.refusal_of(
            enqueue.payload, enqueue.priority, enqueue.scheduled_for, enqueue.max_attempts, enqueue.dedupe_key,
            enqueue.correlation_id)
    end;
begin
    if refusal is not null then
        raise exception 'not enqueued: %', refusal using errcode = 'FL001', detail = refusal,
            hint = 'The bounds of payload, priority, time, attempts and keys are in the reference of errors.';
    end if;
    select o.job_id, o.outcome into answer
    from fairlead.enqueue_one(
        tenant => enqueue.tenant, definition_key => enqueue.definition, payload => enqueue.payload,
        priority => enqueue.priority, scheduled_for => enqueue.scheduled_for, max_attempts => enqueue.max_attempts,
        dedupe_key => enqueue.dedupe_key, correlation_id => enqueue.correlation_id) o;
    if answer.outcome not in ('enqueued', 'deduplicated') then
        raise exception 'not enqueued: % (tenant %, definition %)',
            answer.outcome, enqueue.tenant, enqueue.definition
            using errcode = 'FL001', detail = answer.outcome;
    end if;
    job_id := answer.job_id;
    deduplicated := answer.outcome = 'deduplicated';
end
$$;

-- The library's door into somebody else's transaction. One text in and one text out, both JSON,
-- so that every driver carries them the same way. Already validated by the library against the
-- versions it names; if one is refused or has changed, nothing is inserted at all.
create function fairlead.enqueue_joined(jobs text) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    asked jsonb := enqueue_joined.jobs::jsonb;
    refused jsonb;
    answers jsonb;
begin
    select jsonb_agg(jsonb_build_object('at', c.at - 1, 'outcome', c.refusal, 'definition', c.definition) order by c.at)
    into refused
    from (
        select j.at, r.definition, coalesce(
            r.refusal,
            fairlead.refusal_of(
                j.job -> 'payload', (j.job ->> 'priority')::integer, (j.job ->> 'scheduled_for')::timestamptz,
                (j.job ->> 'max_attempts')::integer, j.job ->> 'dedupe_key', j.job ->> 'correlation_id'),
            case when exists (select from fairlead.jobs t where t.id = (j.job ->> 'id')::uuid) then 'job_id_taken' end
        ) as refusal
        from jsonb_array_elements(asked) with ordinality as j(job, at)
        cross join lateral fairlead.resolve(
            j.job ->> 'tenant', j.job ->> 'definition', coalesce((j.job ->> 'expected_version')::integer, 0)) r
    ) c
    where c.refusal is not null;
    if refused is not null then
        return jsonb_build_object('refused', refused)::text;
    end if;

    -- in the order in which every bulk load takes its keys, so that no two callers can wait for each other
    select jsonb_agg(jsonb_build_object('at', o.at - 1, 'outcome', o.outcome, 'job_id', o.job_id) order by o.at)
    into answers
    from (
        select j.at, e.outcome, e.job_id
        from (
            select a.job, a.at
            from jsonb_array_elements(asked) with ordinality as a(job, at)
            cross join lateral fairlead.resolve(a.job ->> 'tenant', a.job ->> 'definition', null) r
            order by r.tenant_id, sha256(convert_to(a.job ->> 'dedupe_key', 'UTF8')), a.at
            offset 0
        ) j
        cross join lateral fairlead.enqueue_one(
            tenant => j.job ->> 'tenant',
            definition_key => j.job ->> 'definition',
            payload => j.job -> 'payload',
            priority => (j.job ->> 'priority')::integer,
            scheduled_for => (j.job ->> 'scheduled_for')::timestamptz,
            max_attempts => (j.job ->> 'max_attempts')::integer,
            dedupe_key => j.job ->> 'dedupe_key',
            correlation_id => j.job ->> 'correlation_id',
            source => coalesce(j.job ->> 'source', 'manual')::fairlead.job_source,
            source_ref => j.job ->> 'source_ref',
            parent_id => (j.job ->> 'parent_id')::uuid,
            actor => j.job ->> 'actor',
            id => (j.job ->> 'id')::uuid) e
    ) o;
    return jsonb_build_object('enqueued', answers)::text;
end
$$;

-- Execute is granted to the application's role by whoever runs the database.
revoke execute on function fairlead.enqueue(text, text, jsonb, integer, timestamptz, integer, text, text) from public;
revoke execute on function fairlead.enqueue_joined(text) from public;
revoke execute on function fairlead.enqueue_one(
    text, text, jsonb, integer, timestamptz, integer, text, text, fairlead.job_source, text, uuid, text, uuid, integer)
    from public;
revoke execute on function fairlead.prepare_audit_days(integer) from public;
