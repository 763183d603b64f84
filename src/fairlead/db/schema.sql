-- What the migrations make (make schema). For reading and diffing; never run.

CREATE SCHEMA fairlead;

CREATE TYPE fairlead.job_source AS ENUM (
    'manual',
    'event',
    'schedule',
    'system'
);

CREATE TYPE fairlead.job_status AS ENUM (
    'queued',
    'running',
    'succeeded',
    'failed',
    'dead_letter',
    'canceled'
);

CREATE FUNCTION fairlead.enqueue(tenant text, definition text, payload jsonb DEFAULT '{}'::jsonb, priority integer DEFAULT NULL::integer, scheduled_for timestamp with time zone DEFAULT NULL::timestamp with time zone, max_attempts integer DEFAULT NULL::integer, dedupe_key text DEFAULT NULL::text, correlation_id text DEFAULT NULL::text, OUT job_id uuid, OUT deduplicated boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;

CREATE FUNCTION fairlead.enqueue_joined(jobs text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

CREATE FUNCTION fairlead.enqueue_one(tenant text, definition_key text, payload jsonb, priority integer DEFAULT NULL::integer, scheduled_for timestamp with time zone DEFAULT NULL::timestamp with time zone, max_attempts integer DEFAULT NULL::integer, dedupe_key text DEFAULT NULL::text, correlation_id text DEFAULT NULL::text, source fairlead.job_source DEFAULT 'manual'::fairlead.job_source, source_ref text DEFAULT NULL::text, parent_id uuid DEFAULT NULL::uuid, actor text DEFAULT NULL::text, id uuid DEFAULT NULL::uuid, expected_version integer DEFAULT NULL::integer, OUT job_id uuid, OUT outcome text, OUT definition jsonb, OUT tenant_id uuid, OUT definition_id uuid) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION fairlead.prepare_audit_days(days integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION fairlead.refusal_of(payload jsonb, priority integer, scheduled_for timestamp with time zone, max_attempts integer, dedupe_key text, correlation_id text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
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
$_$;

CREATE FUNCTION fairlead.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise exception 'the audit log cannot be changed (% on %)', lower(tg_op), tg_table_name
        using errcode = 'insufficient_privilege';
end
$$;

CREATE FUNCTION fairlead.refuse_delete() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise exception '% rows are not deleted: pause or deactivate instead', tg_table_name
        using errcode = 'restrict_violation';
end
$$;

CREATE FUNCTION fairlead.refuse_rename() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise exception 'the % of % rows does not change', tg_argv[0], tg_table_name using errcode = 'restrict_violation';
end
$$;

CREATE FUNCTION fairlead.resolve(tenant text, definition_key text, expected_version integer) RETURNS TABLE(tenant_id uuid, definition_id uuid, default_priority integer, max_attempts integer, refusal text, definition jsonb)
    LANGUAGE sql STABLE
    AS $_$
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
$_$;

CREATE FUNCTION fairlead.touch_definition() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    new.version := old.version + 1;
    new.updated_at := clock_timestamp();
    return new;
end
$$;

CREATE FUNCTION fairlead.uuid7() RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    AS $$
    select encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
                from 1 for 6),
            52, 1), 53, 1),
        'hex')::uuid
$$;

CREATE TABLE fairlead.active_keys (
    tenant_id uuid NOT NULL,
    key_hash bytea NOT NULL,
    job_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE fairlead.audit_log (
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    tenant_id uuid,
    actor text NOT NULL,
    action text NOT NULL,
    resource_type text NOT NULL,
    resource_id text,
    details jsonb DEFAULT '{}'::jsonb NOT NULL,
    ip inet
)
PARTITION BY RANGE (at);

CREATE TABLE fairlead.audit_log_rest (
    at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT audit_log_at_not_null NOT NULL,
    tenant_id uuid,
    actor text CONSTRAINT audit_log_actor_not_null NOT NULL,
    action text CONSTRAINT audit_log_action_not_null NOT NULL,
    resource_type text CONSTRAINT audit_log_resource_type_not_null NOT NULL,
    resource_id text,
    details jsonb DEFAULT '{}'::jsonb CONSTRAINT audit_log_details_not_null NOT NULL,
    ip inet
);

CREATE TABLE fairlead.counts (
    tenant_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    minute timestamp with time zone NOT NULL,
    queued integer DEFAULT 0 NOT NULL,
    running integer DEFAULT 0 NOT NULL,
    succeeded integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    dead_letter integer DEFAULT 0 NOT NULL,
    canceled integer DEFAULT 0 NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='10000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE fairlead.hosts (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    tenant_id uuid NOT NULL,
    name text NOT NULL,
    max_running integer DEFAULT 1 NOT NULL,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    paused_at timestamp with time zone,
    paused_by text,
    pause_note text,
    last_seen_at timestamp with time zone,
    agent_version text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT hosts_max_running CHECK ((max_running > 0))
);

CREATE TABLE fairlead.job_attempts (
    id uuid NOT NULL,
    job_id uuid NOT NULL,
    attempt_no integer NOT NULL,
    tenant_id uuid NOT NULL,
    token uuid NOT NULL,
    worker_id text NOT NULL,
    pid integer,
    status text DEFAULT 'running'::text NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    finished_at timestamp with time zone,
    duration_ms bigint,
    exit_code integer,
    signal integer,
    cost_cents bigint DEFAULT 0 NOT NULL,
    error_text text,
    stdout_tail text,
    stderr_tail text,
    CONSTRAINT attempts_life CHECK (((status = 'running'::text) = (finished_at IS NULL))),
    CONSTRAINT attempts_number CHECK ((attempt_no > 0)),
    CONSTRAINT attempts_status CHECK ((status = ANY (ARRAY['running'::text, 'succeeded'::text, 'failed'::text, 'timeout'::text, 'canceled'::text, 'lost'::text, 'released'::text])))
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE fairlead.job_definitions (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    key text NOT NULL,
    version integer DEFAULT 1 NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    kind text DEFAULT 'function'::text NOT NULL,
    arg_schema jsonb DEFAULT '{}'::jsonb NOT NULL,
    timeout_seconds integer DEFAULT 3600 NOT NULL,
    max_attempts integer DEFAULT 3 NOT NULL,
    backoff jsonb DEFAULT '{"factor": 2, "jitter": 0.1, "cap_seconds": 3600, "base_seconds": 10}'::jsonb NOT NULL,
    max_running integer,
    max_running_per_tenant integer,
    default_priority integer DEFAULT 100 NOT NULL,
    resource_pointer text,
    audit_action text DEFAULT 'JOB_SUCCEEDED'::text,
    retention_days integer,
    is_active boolean DEFAULT true NOT NULL,
    paused_at timestamp with time zone,
    paused_by text,
    pause_note text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT definitions_arg_schema CHECK ((jsonb_typeof(arg_schema) = ANY (ARRAY['object'::text, 'boolean'::text]))),
    CONSTRAINT definitions_backoff CHECK (((jsonb_typeof(backoff) = 'object'::text) AND (backoff ?& ARRAY['base_seconds'::text, 'factor'::text, 'cap_seconds'::text, 'jitter'::text]))),
    CONSTRAINT definitions_key CHECK ((key ~ '^[A-Za-z][A-Za-z0-9._-]{0,127}$'::text)),
    CONSTRAINT definitions_kind CHECK ((kind = ANY (ARRAY['function'::text, 'command'::text, 'host'::text, 'workflow'::text]))),
    CONSTRAINT definitions_max_attempts CHECK (((max_attempts >= 1) AND (max_attempts <= 1000))),
    CONSTRAINT definitions_max_running CHECK ((max_running > 0)),
    CONSTRAINT definitions_max_running_per_tenant CHECK ((max_running_per_tenant > 0)),
    CONSTRAINT definitions_retention CHECK ((retention_days > 0)),
    CONSTRAINT definitions_timeout CHECK (((timeout_seconds >= 1) AND (timeout_seconds <= 2592000)))
);

CREATE TABLE fairlead.job_workers (
    worker_id text NOT NULL,
    hostname text NOT NULL,
    version text DEFAULT ''::text NOT NULL,
    queues text[] DEFAULT '{}'::text[] NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    last_seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    running_count integer DEFAULT 0 NOT NULL,
    concurrency integer DEFAULT 0 NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE fairlead.jobs (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    parent_id uuid,
    workflow_run_id uuid,
    host_id uuid,
    resource_id uuid,
    priority integer NOT NULL,
    max_attempts integer NOT NULL,
    attempt_count integer DEFAULT 0 NOT NULL,
    failure_count integer DEFAULT 0 NOT NULL,
    lost_count integer DEFAULT 0 NOT NULL,
    cost_cents bigint DEFAULT 0 NOT NULL,
    scheduled_for timestamp with time zone NOT NULL,
    queued_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    cancel_requested_at timestamp with time zone,
    troubled boolean DEFAULT false NOT NULL,
    status fairlead.job_status DEFAULT 'queued'::fairlead.job_status NOT NULL,
    source fairlead.job_source DEFAULT 'manual'::fairlead.job_source NOT NULL,
    source_ref text,
    dedupe_key text,
    correlation_id text,
    created_by text,
    claimed_by_worker text,
    last_error text,
    payload jsonb NOT NULL,
    output jsonb,
    error jsonb,
    progress jsonb,
    CONSTRAINT jobs_life CHECK ((((status > 'running'::fairlead.job_status) = (finished_at IS NOT NULL)) AND ((status > 'succeeded'::fairlead.job_status) = troubled) AND ((attempt_count > 0) = (started_at IS NOT NULL))))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

CREATE TABLE fairlead.later (
    job_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    host_id uuid,
    priority integer NOT NULL,
    due_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='5000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE fairlead.leases (
    job_id uuid NOT NULL,
    attempt_no integer NOT NULL,
    token uuid NOT NULL,
    worker_id text NOT NULL,
    tenant_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    host_id uuid,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='5000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE fairlead.limit_locks (
    scope text NOT NULL,
    scope_id uuid NOT NULL,
    other_id uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    CONSTRAINT limit_locks_scope CHECK ((scope = ANY (ARRAY['tenant'::text, 'definition'::text, 'definition_tenant'::text, 'host'::text])))
);

CREATE TABLE fairlead.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE fairlead.ready (
    job_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    host_id uuid,
    priority integer NOT NULL,
    scheduled_for timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='5000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE fairlead.resources (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    tenant_id uuid NOT NULL,
    host_id uuid NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE fairlead.system (
    only_row boolean DEFAULT true NOT NULL,
    online boolean DEFAULT true NOT NULL,
    note text,
    changed_by text,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT system_only_row_check CHECK (only_row)
);

CREATE TABLE fairlead.tenants (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    slug text NOT NULL,
    name text NOT NULL,
    timezone text DEFAULT 'UTC'::text NOT NULL,
    weight integer DEFAULT 1 NOT NULL,
    max_running integer,
    paused_at timestamp with time zone,
    paused_by text,
    pause_note text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT tenants_max_running CHECK ((max_running > 0)),
    CONSTRAINT tenants_name CHECK (((name <> ''::text) AND (length(name) <= 200))),
    CONSTRAINT tenants_slug CHECK (((slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'::text) AND (slug !~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'::text))),
    CONSTRAINT tenants_weight CHECK (((weight >= 1) AND (weight <= 1000)))
);

ALTER TABLE ONLY fairlead.audit_log ATTACH PARTITION fairlead.audit_log_rest DEFAULT;

ALTER TABLE ONLY fairlead.active_keys
    ADD CONSTRAINT active_keys_pkey PRIMARY KEY (tenant_id, key_hash);

ALTER TABLE ONLY fairlead.hosts
    ADD CONSTRAINT hosts_name UNIQUE (tenant_id, name);

ALTER TABLE ONLY fairlead.hosts
    ADD CONSTRAINT hosts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.job_attempts
    ADD CONSTRAINT job_attempts_pkey PRIMARY KEY (job_id, attempt_no);

ALTER TABLE ONLY fairlead.job_definitions
    ADD CONSTRAINT job_definitions_key_key UNIQUE (key);

ALTER TABLE ONLY fairlead.job_definitions
    ADD CONSTRAINT job_definitions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.job_workers
    ADD CONSTRAINT job_workers_pkey PRIMARY KEY (worker_id);

ALTER TABLE ONLY fairlead.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.later
    ADD CONSTRAINT later_pkey PRIMARY KEY (due_at, job_id);

ALTER TABLE ONLY fairlead.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY fairlead.limit_locks
    ADD CONSTRAINT limit_locks_pkey PRIMARY KEY (scope, scope_id, other_id);

ALTER TABLE ONLY fairlead.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);

ALTER TABLE ONLY fairlead.resources
    ADD CONSTRAINT resources_name UNIQUE (tenant_id, kind, name);

ALTER TABLE ONLY fairlead.resources
    ADD CONSTRAINT resources_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.system
    ADD CONSTRAINT system_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY fairlead.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.tenants
    ADD CONSTRAINT tenants_slug_key UNIQUE (slug);

CREATE INDEX audit_by_tenant ON ONLY fairlead.audit_log USING btree (tenant_id, at);

CREATE INDEX audit_log_rest_tenant_id_at_idx ON fairlead.audit_log_rest USING btree (tenant_id, at);

CREATE INDEX counts_by_tenant ON fairlead.counts USING btree (tenant_id, minute);

CREATE INDEX jobs_by_correlation ON fairlead.jobs USING btree (tenant_id, correlation_id, id) WHERE (correlation_id IS NOT NULL);

CREATE INDEX jobs_by_dedupe_key ON fairlead.jobs USING btree (tenant_id, hashtextextended(dedupe_key, (0)::bigint), id) WHERE (dedupe_key IS NOT NULL);

CREATE INDEX jobs_by_parent ON fairlead.jobs USING btree (parent_id) WHERE (parent_id IS NOT NULL);

CREATE INDEX jobs_by_tenant ON fairlead.jobs USING btree (tenant_id, id);

CREATE INDEX jobs_troubled ON fairlead.jobs USING btree (tenant_id, id) WHERE troubled;

CREATE INDEX leases_by_host ON fairlead.leases USING btree (host_id) WHERE (host_id IS NOT NULL);

CREATE INDEX leases_by_tenant ON fairlead.leases USING btree (tenant_id, definition_id);

CREATE UNIQUE INDEX ready_by_host ON fairlead.ready USING btree (host_id, priority, scheduled_for, job_id) WHERE (host_id IS NOT NULL);

CREATE UNIQUE INDEX ready_by_tenant ON fairlead.ready USING btree (tenant_id, definition_id, priority, scheduled_for, job_id) WHERE (host_id IS NULL);

CREATE INDEX resources_by_host ON fairlead.resources USING btree (host_id);

ALTER INDEX fairlead.audit_by_tenant ATTACH PARTITION fairlead.audit_log_rest_tenant_id_at_idx;

CREATE TRIGGER audit_rows_stay BEFORE DELETE OR UPDATE ON fairlead.audit_log FOR EACH ROW EXECUTE FUNCTION fairlead.refuse_change();

CREATE TRIGGER audit_stays BEFORE TRUNCATE ON fairlead.audit_log FOR EACH STATEMENT EXECUTE FUNCTION fairlead.refuse_change();

CREATE TRIGGER audit_stays BEFORE TRUNCATE ON fairlead.audit_log_rest FOR EACH STATEMENT EXECUTE FUNCTION fairlead.refuse_change();

CREATE TRIGGER definitions_keep_key BEFORE UPDATE OF key ON fairlead.job_definitions FOR EACH ROW WHEN ((new.key <> old.key)) EXECUTE FUNCTION fairlead.refuse_rename('key');

CREATE TRIGGER definitions_stay BEFORE DELETE ON fairlead.job_definitions FOR EACH ROW EXECUTE FUNCTION fairlead.refuse_delete();

CREATE TRIGGER definitions_version BEFORE UPDATE ON fairlead.job_definitions FOR EACH ROW EXECUTE FUNCTION fairlead.touch_definition();

CREATE TRIGGER tenants_keep_slug BEFORE UPDATE OF slug ON fairlead.tenants FOR EACH ROW WHEN ((new.slug <> old.slug)) EXECUTE FUNCTION fairlead.refuse_rename('slug');

CREATE TRIGGER tenants_stay BEFORE DELETE ON fairlead.tenants FOR EACH ROW EXECUTE FUNCTION fairlead.refuse_delete();

ALTER TABLE ONLY fairlead.hosts
    ADD CONSTRAINT hosts_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.resources
    ADD CONSTRAINT resources_host_id_fkey FOREIGN KEY (host_id) REFERENCES fairlead.hosts(id);

ALTER TABLE ONLY fairlead.resources
    ADD CONSTRAINT resources_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

REVOKE ALL ON FUNCTION fairlead.enqueue(tenant text, definition text, payload jsonb, priority integer, scheduled_for timestamp with time zone, max_attempts integer, dedupe_key text, correlation_id text, OUT job_id uuid, OUT deduplicated boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION fairlead.enqueue_joined(jobs text) FROM PUBLIC;

REVOKE ALL ON FUNCTION fairlead.enqueue_one(tenant text, definition_key text, payload jsonb, priority integer, scheduled_for timestamp with time zone, max_attempts integer, dedupe_key text, correlation_id text, source fairlead.job_source, source_ref text, parent_id uuid, actor text, id uuid, expected_version integer, OUT job_id uuid, OUT outcome text, OUT definition jsonb, OUT tenant_id uuid, OUT definition_id uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION fairlead.prepare_audit_days(days integer) FROM PUBLIC;
