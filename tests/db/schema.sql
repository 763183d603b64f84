-- What the migrations make (make schema). For reading and diffing; never run.

CREATE SCHEMA fairlead;

CREATE TYPE fairlead.job_status AS ENUM (
    'queued',
    'running',
    'succeeded',
    'failed',
    'dead_letter',
    'canceled'
);

CREATE TYPE fairlead.job_end AS (
	id uuid,
	tenant_id uuid,
	status fairlead.job_status
);

CREATE TYPE fairlead.job_source AS ENUM (
    'manual',
    'event',
    'schedule',
    'system'
);

CREATE TYPE fairlead.step_job AS (
	id uuid,
	run_id uuid,
	tenant_id uuid,
	key text,
	correlation_id text,
	place integer,
	item integer,
	definition_id uuid,
	priority integer,
	max_attempts integer,
	timeout integer,
	name text,
	payload jsonb,
	secret_paths text[],
	host_id uuid,
	resource_id uuid,
	tags text[],
	expires_in double precision
);

CREATE FUNCTION fairlead.add_step_jobs(new fairlead.step_job[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform case when pg_try_advisory_xact_lock(fairlead.key_turn_of(k.definition_id, k.tenant_id, k.limit_key))
        then fairlead.apply_key_strategy(
            k.definition_id, k.tenant_id, k.limit_key, k.by_key, k.job_id, k.actor, waits => false) end
    from (
        select n.definition_id, n.tenant_id, l.limit_key, d.by_key, min(n.id::text)::uuid as job_id,
            min('workflow:' || n.key) as actor
        from unnest(add_step_jobs.new) n
        join fairlead.job_definitions d on d.id = n.definition_id
        cross join lateral (select fairlead.limit_key_of(d.by_key, n.payload) as limit_key offset 0) l
        where d.by_key ->> 'strategy' in ('replace_queued', 'cancel_running') and l.limit_key is not null
        group by n.definition_id, n.tenant_id, l.limit_key, d.by_key
        offset 0) k;
    with job as (
        insert into fairlead.job_records (
            id, tenant_id, definition_id, workflow_run_id, workflow_step, workflow_item, priority, max_attempts,
            timeout_seconds, scheduled_for, source, source_ref, correlation_id, created_by, payload, secret_paths, host_id,
            resource_id, limit_key, tags, expires_at)
        select n.id, n.tenant_id, n.definition_id, n.run_id, n.place, n.item, n.priority, n.max_attempts, n.timeout,
            clock_timestamp(), 'system', n.name, n.correlation_id, 'workflow:' || n.key, n.payload, n.secret_paths,
            n.host_id, n.resource_id, (
                select fairlead.limit_key_of(d.by_key, n.payload) from fairlead.job_definitions d where d.id = n.definition_id),
            n.tags, clock_timestamp() + make_interval(secs => n.expires_in)
        from unnest(add_step_jobs.new) n
        returning id, tenant_id, definition_id, workflow_run_id, priority,
            greatest(scheduled_for, queued_at) as scheduled_for, created_by, host_id, limit_key
    ), now_ready as (
        insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for, host_id, limit_key)
        select id, tenant_id, definition_id, priority, scheduled_for, host_id, limit_key from job
    ), counted as (
        insert into fairlead.counts (tenant_id, definition_id, minute, queued)
        select tenant_id, definition_id, date_trunc('minute', clock_timestamp()), count(*)
        from job group by tenant_id, definition_id
    ), of_root as (
        insert into fairlead.run_jobs (root_run_id, tenant_id, jobs)
        select coalesce(r.root_run_id, r.id), j.tenant_id, sum(j.jobs)
        from (select tenant_id, workflow_run_id, count(*) as jobs from job group by tenant_id, workflow_run_id) j
        cross join lateral (
            select r.root_run_id, r.id from fairlead.workflow_runs r where r.id = j.workflow_run_id limit 1) r
        group by 1, 2
    )
    insert into fairlead.audit_log (tenant_id, actor, action, resource_type, resource_id, details)
    select tenant_id, min(created_by), 'jobs_created', 'workflow_run', workflow_run_id::text,
        jsonb_build_object('count', count(*))
    from job group by tenant_id, workflow_run_id;

    -- few steps have tags or expire
    if exists (select from unnest(add_step_jobs.new) n where n.tags is not null or n.expires_in is not null) then
        insert into fairlead.job_tags (tenant_id, tag, job_id)
        select n.tenant_id, t.tag, n.id from unnest(add_step_jobs.new) n, unnest(n.tags) as t(tag);
        insert into fairlead.expiries (expires_at, job_id, tenant_id)
        select j.expires_at, j.id, j.tenant_id from unnest(add_step_jobs.new) n
        cross join lateral (
            select j.expires_at, j.id, j.tenant_id from fairlead.job_records j where j.id = n.id limit 1) j
        where n.expires_in is not null;
    end if;
end
$$;

CREATE FUNCTION fairlead.append_log(of_job uuid, of_attempt integer, lease_token uuid, of_tenant uuid, chunks jsonb, max_bytes bigint, max_chunks integer, last_seq integer, mark text, OUT kept integer, OUT truncated boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
begin
    -- A key share lock lets heartbeats renew the lease meanwhile. The transaction that ends the attempt deletes the lease
    -- and waits for this lock, so nothing is added to an attempt that is over.
    perform from fairlead.leases l
    where l.job_id = of_job and l.attempt_no = of_attempt and l.token = lease_token and l.expires_at > clock_timestamp()
    for key share;
    if not found then
        return;
    end if;
    -- Two calls for one attempt run one after the other: the second counts the chunks of the first.
    perform pg_advisory_xact_lock(hashtextextended(of_job::text, of_attempt));
    with before as materialized (
        select coalesce(sum(octet_length(c.text)), 0) as bytes, count(*) as chunks,
            coalesce(bool_or(c.seq = append_log.last_seq), false) as marked
        from fairlead.log_chunks c where c.job_id = of_job and c.attempt_no = of_attempt
    ), fresh as materialized (
        select n.seq, n.stream, n.text, sum(octet_length(n.text)) over w as bytes, count(*) over w as chunks
        from jsonb_to_recordset(append_log.chunks) as n(seq int, stream text, text text)
        where not exists (
            select from fairlead.log_chunks c
            where c.job_id = of_job and c.attempt_no = of_attempt and c.seq = n.seq)
        window w as (order by n.seq rows unbounded preceding)
    ), fits as materialized (
        select f.seq, f.stream, f.text from fresh f cross join before b
        where not b.marked and b.bytes + f.bytes <= append_log.max_bytes and b.chunks + f.chunks <= append_log.max_chunks
    ), added as (
        insert into fairlead.log_chunks (job_id, attempt_no, seq, tenant_id, stream, text)
        select of_job, of_attempt, f.seq, of_tenant, f.stream, f.text from fits f order by f.seq
        on conflict do nothing returning 1
    ), marked as (
        insert into fairlead.log_chunks (job_id, attempt_no, seq, tenant_id, stream, text)
        select of_job, of_attempt, append_log.last_seq, of_tenant, 'log', append_log.mark from before b
        where not b.marked and (select count(*) from fits) < (select count(*) from fresh)
        on conflict do nothing returning 1
    )
    select (select count(*) from added), b.marked or exists (select from marked) into kept, truncated from before b;
end
$$;

CREATE FUNCTION fairlead.apply_key_strategy(definition uuid, tenant uuid, limit_key uuid, by_key jsonb, new_job uuid, actor text, waits boolean DEFAULT true) RETURNS uuid
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    strategy constant text := coalesce(by_key ->> 'strategy', 'queue');
    most constant integer := (by_key ->> 'max_running')::integer;
    running uuid[];
    waiting uuid[];
    canceled uuid[];
    any_canceled boolean := false;
begin
    if strategy = 'queue' then
        return null;
    end if;
    perform pg_advisory_xact_lock(fairlead.key_turn_of(definition, tenant, apply_key_strategy.limit_key));
    -- A few rounds: a job may move from one table to the other while this waits for it.
    for _ in 1..20 loop
        if waits and strategy <> 'drop_new' then
            perform from fairlead.ready r
            where r.definition_id = definition and r.tenant_id = tenant and r.limit_key = apply_key_strategy.limit_key
            order by r.job_id for update;
            perform from fairlead.later l
            where l.definition_id = definition and l.tenant_id = tenant and l.limit_key = apply_key_strategy.limit_key
            order by l.job_id for update;
        end if;
        -- one statement: each job is in one of the tables
        select array(
                select l.job_id from fairlead.leases l
                where l.definition_id = definition and l.tenant_id = tenant and l.limit_key = apply_key_strategy.limit_key),
            array(
                select r.job_id from fairlead.ready r
                where r.definition_id = definition and r.tenant_id = tenant and r.limit_key = apply_key_strategy.limit_key
                union all
                select l.job_id from fairlead.later l
                where l.definition_id = definition and l.tenant_id = tenant and l.limit_key = apply_key_strategy.limit_key)
        into running, waiting;
        exit when strategy = 'drop_new' or waiting = '{}';
        canceled := fairlead.cancel_waiting(
            waiting, 'replaced', format('Job %s with the same key has replaced it.', new_job), actor);
        any_canceled := any_canceled or canceled <> '{}';
        -- steps of workflow runs stay
        exit when not waits or not exists (
            select from fairlead.job_records j
            where j.id = any(waiting) and j.id <> all(canceled) and j.workflow_run_id is null and j.status = 'queued');
    end loop;
    if strategy = 'drop_new' then
        -- with a rate alone, any number may run and one may wait
        if cardinality(running) + cardinality(waiting) >= most or most is null and cardinality(waiting) > 0 then
            return (select max(one::text)::uuid from unnest(running || waiting) one);
        end if;
        return null;
    end if;
    if any_canceled then
        -- a step of a workflow run may now be the first
        perform fairlead.let_held_go(definition, tenant, apply_key_strategy.limit_key, by_key);
    end if;
    if strategy = 'cancel_running' and cardinality(running) >= most then
        with asked as (
            update fairlead.job_records j set cancel_requested_at = clock_timestamp()
            where j.id = any(running) and j.cancel_requested_at is null
            returning j.id, j.cancel_requested_at
        )
        insert into fairlead.audit_log (at, tenant_id, actor, action, resource_type, resource_id, details)
        select a.cancel_requested_at, apply_key_strategy.tenant, apply_key_strategy.actor, 'JOB_CANCEL_REQUESTED', 'job',
            a.id::text, jsonb_build_object('definition_key', d.key, 'reason', 'replaced')
        from asked a, fairlead.job_definitions d where d.id = apply_key_strategy.definition;
        perform fairlead.notify_in_transaction('cancel');
    end if;
    return null;
end
$$;

CREATE FUNCTION fairlead.as_id(name text) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
    select case when name ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then name::uuid end
$_$;

CREATE FUNCTION fairlead.attempt_id(job_id uuid, attempt_no integer) RETURNS uuid
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when attempt_no = 1 then overlay(job_id::text placing '8' from 15 for 1)::uuid
        else md5(job_id::text || attempt_no)::uuid end
$$;

CREATE TABLE fairlead.job_steps (
    job_id uuid NOT NULL,
    "position" integer NOT NULL,
    attempt_no integer NOT NULL,
    status text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    branch text DEFAULT ''::text NOT NULL,
    tenant_id uuid NOT NULL,
    tries integer DEFAULT 1 NOT NULL,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    due_at timestamp with time zone,
    child_id uuid,
    match_key uuid,
    secret boolean DEFAULT false NOT NULL,
    request jsonb,
    result json,
    error jsonb,
    CONSTRAINT job_steps_status CHECK ((status = ANY (ARRAY['waiting'::text, 'succeeded'::text, 'retry'::text, 'failed'::text, 'timeout'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.job_steps FORCE ROW LEVEL SECURITY;

CREATE FUNCTION fairlead.begin_wait(job_id uuid, attempt_no integer, token uuid, branch text, "position" integer, kind text, name text, seconds double precision, due timestamp with time zone, request jsonb, child uuid, tries integer, match_key uuid) RETURNS fairlead.job_steps
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    step fairlead.job_steps;
    tenant uuid;
    moment timestamptz;
    ended fairlead.job_records;
    signal fairlead.job_signals;
begin
    if begin_wait.kind = 'signal' then
        -- a signal is sent under the same lock: it sees this wait, or is seen here
        perform pg_advisory_xact_lock(hashtextextended('fairlead.signal ' || begin_wait.job_id, 0));
    end if;
    select l.tenant_id into tenant from fairlead.leases l
    where l.job_id = begin_wait.job_id and l.attempt_no = begin_wait.attempt_no and l.token = begin_wait.token
        and l.expires_at > clock_timestamp()
    for key share;
    if not found then
        return null;
    end if;
    if begin_wait.child is not null then
        -- `share`, so that it waits for a transaction that ends the child, and is waited for by one: see tell_ends.sql
        select j.* into ended from fairlead.job_records j where j.id = begin_wait.child for share;
    end if;
    moment := clock_timestamp();
    insert into fairlead.job_steps (
        job_id, branch, position, attempt_no, status, kind, name, tenant_id, tries, started_at, due_at, child_id, match_key,
        request)
    values (
        begin_wait.job_id, begin_wait.branch, begin_wait.position, begin_wait.attempt_no, 'waiting', begin_wait.kind,
        begin_wait.name, tenant, begin_wait.tries, moment,
        coalesce(begin_wait.due, moment + make_interval(secs => begin_wait.seconds)), begin_wait.child,
        begin_wait.match_key, begin_wait.request)
    on conflict (job_id, branch, position) do update
    set attempt_no = excluded.attempt_no, status = 'waiting', tries = excluded.tries, started_at = excluded.started_at,
        ended_at = null, due_at = excluded.due_at, child_id = excluded.child_id, error = null
    where job_steps.status = 'retry'
    returning * into step;
    if step.job_id is null then
        select s.* into step from fairlead.job_steps s
        where s.job_id = begin_wait.job_id and s.branch = begin_wait.branch and s.position = begin_wait.position;
    end if;
    if step.status <> 'waiting' then
        return step;
    end if;
    if step.kind = 'signal' then
        update fairlead.job_signals set taken_at = moment where id = (
            select s.id from fairlead.job_signals s
            where s.job_id = step.job_id and s.name = step.name and s.taken_at is null order by s.id limit 1)
        returning * into signal;
        if signal.id is not null then
            update fairlead.job_steps s
            set status = 'succeeded', ended_at = moment, result = jsonb_build_object(
                'id', signal.id, 'name', signal.name, 'data', signal.data, 'sent_at', signal.sent_at, 'sent_by', signal.sent_by)
            where s.job_id = step.job_id and s.branch = step.branch and s.position = step.position
            returning * into step;
        end if;
    elsif ended.status > 'running' then
        update fairlead.job_steps s
        set status = case when ended.status = 'succeeded' then 'succeeded' else 'retry' end, ended_at = moment,
            attempt_no = case when ended.status = 'succeeded' then s.attempt_no else 0 end, result = ended.output,
            error = fairlead.error_of_child(ended.status, ended.error, ended.last_error)
        where s.job_id = step.job_id and s.branch = step.branch and s.position = step.position
        returning * into step;
    end if;
    return step;
end
$$;

CREATE FUNCTION fairlead.budgets(tenants uuid[], definitions uuid[], tenant_limits integer[], definition_limits integer[], pair_limits integer[], host uuid, host_limit integer, most_jobs integer, INOUT missed text[], OUT places jsonb) RETURNS record
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    nobody constant uuid := '00000000-0000-0000-0000-000000000000';
    slots constant integer := 16;
    -- a claim takes at most half of the slots and leaves the rest to other claims
    most_slots constant integer := 8;
    -- the limited scopes, column by column
    names text[] := '{}';
    scopes text[] := '{}';
    ids uuid[] := '{}';
    others uuid[] := '{}';
    mosts integer[] := '{}';
    seen uuid[] := '{}';
    tenant uuid;
    definition uuid;
    share integer;
    number integer;
    has_slots_of text := coalesce(current_setting('fairlead.has_slots_of', true), '');
    -- the number of slots that this claim got; null in scopes where it needs all rows
    got integer[];
    -- the names of scopes of which this claim holds all rows
    held text[] := '{}';
begin
    -- Loops: one SQL statement for all this would take several times as long to start.
    if budgets.host is not null then
        names := array[budgets.host::text]; scopes := array['host'];
        ids := array[budgets.host]; others := array[nobody]; mosts := array[budgets.host_limit];
    end if;
    for i in 1 .. cardinality(budgets.tenants) loop
        tenant := budgets.tenants[i];
        definition := budgets.definitions[i];
        -- the pairs of a tenant are adjacent
        if budgets.tenant_limits[i] is not null and tenant is distinct from budgets.tenants[i - 1] then
            names := names || tenant::text; scopes := scopes || 'tenant'::text;
            ids := ids || tenant; others := others || nobody; mosts := mosts || budgets.tenant_limits[i];
        end if;
        if budgets.definition_limits[i] is not null and definition <> all(seen) then
            seen := seen || definition;
            names := names || definition::text; scopes := scopes || 'definition'::text;
            ids := ids || definition; others := others || nobody; mosts := mosts || budgets.definition_limits[i];
        end if;
        if budgets.pair_limits[i] is not null then
            names := names || (definition || ' ' || tenant); scopes := scopes || 'definition_tenant'::text;
            ids := ids || definition; others := others || tenant; mosts := mosts || budgets.pair_limits[i];
        end if;
    end loop;
    if names = '{}' then
        return;
    end if;

    got := array_fill(null::integer, array[cardinality(names)]);
    for i in 1 .. cardinality(names) loop
        share := mosts[i] / (4 * slots);
        -- a slot's worth limits a whole transaction: one that already holds slots of this scope needs all rows
        if share > 0 and scopes[i] <> 'host' and position(names[i] in has_slots_of) = 0
            and mosts[i] - slots * share >= fairlead.running_in(scopes[i], ids[i], others[i])
        then
            select count(*) into number from (
                select from fairlead.limit_locks k
                where k.scope = scopes[i] and k.scope_id = ids[i] and k.other_id = others[i] and k.slot > 0
                    and k.worth = share
                order by k.slot limit least(most_slots, 1 + (budgets.most_jobs - 1) / share)
                for update skip locked) k;
            if number > 0 then
                got[i] := number;
                perform set_config(
                    'fairlead.has_slots_of', concat_ws(',', current_setting('fairlead.has_slots_of', true), names[i]), true);
            elsif exists (
                select from fairlead.limit_locks k
                where k.scope = scopes[i] and k.scope_id = ids[i] and k.other_id = others[i] and k.slot > 0
                    and k.worth = share)
            then
                got[i] := 0;
            end if;
        end if;
    end loop;

    if array_position(got, null) is not null then
        -- inserting a row that another claim inserts now would wait for its commit: the try lock skips such rows
        insert into fairlead.limit_locks (scope, scope_id, other_id)
        select s.scope, s.id, s.other
        from unnest(scopes, ids, others) as s(scope, id, other)
        where case when not exists (
                select from fairlead.limit_locks k where k.scope = s.scope and k.scope_id = s.id and k.other_id = s.other)
            then pg_try_advisory_xact_lock(hashtextextended(concat_ws(' ', 'fairlead.limit_locks', s.scope, s.id, s.other), 0))
            end
        on conflict do nothing;

        select array_agg(k.name) into held from (
            select s.name
            from unnest(names, scopes, ids, others, got) as s(name, scope, id, other, got)
            join fairlead.limit_locks k
                on k.scope = s.scope and k.scope_id = s.id and k.other_id = s.other and k.slot = 0
            where s.got is null
            for update of k skip locked
        ) k;
        -- slots are inserted under the lock of row 0, so its holder sees all of them
        select array_agg(s.name) into held
        from unnest(names, scopes, ids, others) as s(name, scope, id, other)
        where s.name = any(held) and (
            select count(*) from fairlead.limit_locks k
            where k.scope = s.scope and k.scope_id = s.id and k.other_id = s.other and k.slot > 0
        ) = (
            select count(*) from (
                select from fairlead.limit_locks k
                where k.scope = s.scope and k.scope_id = s.id and k.other_id = s.other and k.slot > 0
                for update skip locked) k);
        insert into fairlead.limit_locks (scope, scope_id, other_id, slot, worth)
        select s.scope, s.id, s.other, n, s.most / (4 * slots)
        from unnest(names, scopes, ids, others, mosts) as s(name, scope, id, other, most), generate_series(1, slots) n
        where s.most >= 4 * slots and s.scope <> 'host' and s.name = any(held)
            and s.most / (4 * slots) is distinct from (
                select k.worth from fairlead.limit_locks k
                where k.scope = s.scope and k.scope_id = s.id and k.other_id = s.other and k.slot = 1)
        on conflict (scope, scope_id, other_id, slot) do update set worth = excluded.worth;
    end if;

    select jsonb_object_agg(s.name, coalesce(s.place, 0)),
        missed || coalesce(array_agg(s.name) filter (where s.place is null), '{}')
    into places, missed
    from (
        select s.name, case
            when s.got > 0 then case when s.allowed = s.most and s.most - s.most / (4 * slots) * slots >= s.running
                then s.got * (s.most / (4 * slots)) end
            when s.name = any(held) then greatest(0, s.allowed - s.running) end as place
        from (
            -- another process may have lowered this cell's part of a definition's limit before the locks were taken
            select s.*, fairlead.running_in(s.scope, s.id, s.other) as running,
                case s.scope when 'definition' then fairlead.definition_limit(s.id, s.most) else s.most end as allowed
            from unnest(names, scopes, ids, others, mosts, got) as s(name, scope, id, other, most, got)
            offset 0
        ) s
    ) s;
end
$$;

CREATE FUNCTION fairlead.cancel_waiting(ids uuid[], reason text, message text, actor text, with_steps boolean DEFAULT false) RETURNS uuid[]
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    canceled fairlead.job_end[];
    moment constant timestamptz := clock_timestamp();
begin
    with wanted as materialized (
        -- a row for each time that the queue may have: see cancel_queued in store/jobs.sql
        select j.id, j.tenant_id, j.definition_id, j.host_id, j.priority, due.at
        from fairlead.job_records j
        cross join lateral (select distinct unnest(
            array[j.scheduled_for, greatest(j.scheduled_for, j.queued_at)]) as at) due
        where j.id = any(cancel_waiting.ids) and j.status = 'queued'
            and (cancel_waiting.with_steps or j.workflow_run_id is null)
    ), of_tenant as materialized (
        select r.spot from wanted w cross join lateral (
            select r.ctid as spot from fairlead.ready r
            where w.host_id is null and r.host_id is null and r.tenant_id = w.tenant_id
                and r.definition_id = w.definition_id and r.priority = w.priority
                and r.scheduled_for = w.at and r.job_id = w.id
            limit 1 for update skip locked) r
    ), of_host as materialized (
        select r.spot from wanted w cross join lateral (
            select r.ctid as spot from fairlead.ready r
            where r.host_id = w.host_id and r.tenant_id = w.tenant_id
                and r.definition_id = w.definition_id and r.priority = w.priority
                and r.scheduled_for = w.at and r.job_id = w.id
            limit 1 for update skip locked) r
    ), not_due as materialized (
        select l.spot from wanted w cross join lateral (
            select l.ctid as spot from fairlead.later l where l.due_at = w.at and l.job_id = w.id
            limit 1 for update skip locked) l
    ), from_ready as (
        delete from fairlead.ready
        where ctid = any(array(select spot from of_tenant union all select spot from of_host))
        returning job_id
    ), from_later as (
        delete from fairlead.later where ctid = any(array(select spot from not_due)) returning job_id
    ), ended as (
        update fairlead.job_records j
        set status = 'canceled', troubled = true, finished_at = moment,
            cancel_requested_at = coalesce(j.cancel_requested_at, moment), last_error = cancel_waiting.message,
            error = jsonb_build_object('type', cancel_waiting.reason, 'message', cancel_waiting.message)
        where j.id = any(array(select job_id from from_ready union all select job_id from from_later))
        returning j.id, j.tenant_id, j.definition_id, j.dedupe_key
    ), freed as (
        delete from fairlead.active_keys where ctid = any(array(
            select held.spot from ended e cross join lateral (
                select k.ctid as spot from fairlead.active_keys k
                where k.tenant_id = e.tenant_id and k.key_hash = sha256(convert_to(e.dedupe_key, 'UTF8'))
                    and k.job_id = e.id and coalesce(k.unique_until <= clock_timestamp(), true)
                limit 1) held
            where e.dedupe_key is not null))
    ), counted as (
        insert into fairlead.counts (tenant_id, definition_id, minute, queued, canceled)
        select tenant_id, definition_id, date_trunc('minute', moment), -count(*), count(*)
        from ended group by tenant_id, definition_id
    ), audited as (
        insert into fairlead.audit_log (at, tenant_id, actor, action, resource_type, resource_id, details)
        select moment, e.tenant_id, cancel_waiting.actor, 'JOB_CANCELED', 'job', e.id::text,
            jsonb_build_object('definition_key', d.key, 'reason', cancel_waiting.reason)
        from ended e join fairlead.job_definitions d on d.id = e.definition_id
    )
    select array_agg(row(e.id, e.tenant_id, 'canceled')::fairlead.job_end) into canceled from ended e;
    if canceled is null then
        return '{}';
    end if;
    if fairlead.tell_ends(canceled) then
        perform fairlead.notify_in_transaction('event');
    end if;
    return array(select e.id from unnest(canceled) e);
end
$$;

CREATE FUNCTION fairlead.claim(worker text, token uuid, wanted integer, lease_seconds double precision, served uuid[], at_tenant uuid, credit integer, host uuid DEFAULT NULL::uuid, served_pairs text[] DEFAULT NULL::text[], with_waits boolean DEFAULT false, labels jsonb DEFAULT '{}'::jsonb, most_slots integer DEFAULT NULL::integer, prefer_seconds double precision DEFAULT 5) RETURNS text
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
declare
    nil_id constant uuid := '00000000-0000-0000-0000-000000000000';
    max_id constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    -- The walk begins after this pair, and ends there.
    start_tenant uuid := coalesce(claim.at_tenant, nil_id);
    start_definition uuid := case when claim.credit > 0 then nil_id else max_id end;
    -- Where the next section of the walk begins: there is one only if the last section had nothing to take.
    from_tenant uuid := start_tenant;
    from_definition uuid := start_definition;
    from_lap integer := 0;
    resumed boolean := false;
    -- Pairs that the walk passed and may not take. After `closed_limit` of them it starts again in another way: through
    -- the open definitions, if they are few, and past the tenants that are full.
    closed integer;
    closed_limit integer := 16;
    open_definitions uuid[];
    full_tenants jsonb;
    -- those of the open definitions that are not left to other workers; after `left_limit` pairs, only their pairs are visited
    own_definitions uuid[];
    left_limit constant integer := 64;
    -- limits that other claims hold: full, for this claim
    held_limits text[] := '{}';
    -- the pairs found, one place in each array
    tenants uuid[];
    definitions uuid[];
    weights integer[];
    slugs text[];
    -- Each pair's first job, where the scan of its jobs begins: index entries before it are dead, and while an old
    -- transaction holds vacuum back, there may be many of them.
    priorities integer[];
    due_times timestamptz[];
    job_ids uuid[];
    tenant_limits integer[];
    definition_limits integer[];
    pair_limits integer[];
    host_limit integer;
    system_rate jsonb;
    -- when a rate that holds work back allows the next start
    opens_at timestamptz;
    -- the buckets of rates that this claim holds: see rate_room.sql
    buckets jsonb;
    -- the time of the starts, if the rate of a key was counted at that time
    started_at timestamptz;
    closed_rate timestamptz;
    -- how many jobs this claim may take: `wanted`, or as many as the rate of the system allows
    most_jobs integer;
    -- how many more jobs may run in each limited scope
    room jsonb;
    limited boolean;
    rated boolean;
    -- whether a definition limits jobs by key
    keyed boolean;
    key_busy boolean := false;
    -- whether jobs have expired that nothing has canceled yet
    any_expired boolean;
    dropped integer;
    -- whether a definition takes more than one slot
    sized boolean;
    short_of integer;
    short_tenant uuid;
    short_credit integer;
    -- the turn of each chosen job: round, place of the tenant, place within the tenant, what is then left of the tenant's turn
    turns integer[];
    -- whether it held jobs back, so that others may now be the first
    again boolean := false;
    most integer;
    -- the rows of ready to take; and in the order of their turns, also those that were left out later
    ready_rows tid[];
    in_turn tid[];
    definition_ids uuid[];
    next_tenant uuid;
    next_credit integer;
    crowded boolean := false;
    claimed_at timestamptz;
    lease_ends timestamptz;
    answer json;
    job_list text;
begin
    perform fairlead.need_read_committed();
    claimed_at := clock_timestamp();
    if claim.wanted >= 1 then
        select s.rate, exists (select from fairlead.expiries e where e.expires_at <= claimed_at)
        into system_rate, any_expired from fairlead.system s where s.online;
    end if;
    if claim.wanted < 1 or not found then
        return '{}';
    end if;
    if system_rate is not null then
        opens_at := fairlead.rate_opens_at(null, null, system_rate, claimed_at);
        if opens_at is not null then
            return json_build_object('opens_in', date_part('epoch', opens_at - claimed_at));
        end if;
    end if;

    loop
        -- 1. Pairs with work. Each step of the recursion jumps to the next pair in the index, so its cost is the number of
        -- pairs, whatever the number of jobs. It ends with `wanted` open tenants: each of them gets at least one job.
        if claim.host is null then
            with recursive walk as (
                select from_tenant as tenant_id, from_definition as definition_id, from_lap as lap,
                    nil_id as open_tenant, 0 as open_tenants,
                    null::integer as weight, null as slug, false as limited, false as rated, false as keyed, false as sized,
                    null::timestamptz as closed_until,
                    0 as priority, '-infinity'::timestamptz as scheduled_for, nil_id as job_id, 0 as closed
                union all
                select hop.tenant_id, hop.definition_id, hop.lap,
                    case when gate.weight is null then w.open_tenant else hop.tenant_id end,
                    w.open_tenants + (gate.weight is not null and hop.tenant_id <> w.open_tenant)::integer,
                    gate.weight, gate.slug, gate.limited, gate.rated, gate.keyed, gate.sized, gate.closed_until, hop.priority, hop.scheduled_for, hop.job_id,
                    w.closed + (gate.weight is null)::integer
                from walk w
                cross join lateral (
                    (select r.tenant_id, r.definition_id, w.lap, r.priority, r.scheduled_for, r.job_id from fairlead.ready r
                     where open_definitions is null and r.host_id is null
                        and (r.tenant_id, r.definition_id) > (w.tenant_id, w.definition_id)
                        and (r.tenant_id, r.definition_id) <= (
                            case w.lap when 0 then max_id else start_tenant end,
                            case w.lap when 0 then max_id else start_definition end)
                     order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1)
                    union all
                    (select r.tenant_id, r.definition_id, 1, r.priority, r.scheduled_for, r.job_id from fairlead.ready r
                     where open_definitions is null and w.lap = 0 and r.host_id is null
                        and (r.tenant_id, r.definition_id) <= (start_tenant, start_definition)
                     order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1)
                    union all
                    (select n.tenant_id, n.definition_id, n.lap, n.priority, n.scheduled_for, n.job_id
                     from fairlead.next_pair(
                        w.tenant_id, w.definition_id, w.lap, start_tenant, start_definition,
                        case when w.closed < left_limit then open_definitions else own_definitions end, full_tenants) n
                     where open_definitions is not null and n.tenant_id is not null)
                    limit 1
                ) hop
                -- the gates: pauses, the definitions that this worker serves, labels, slots, limits
                left join lateral (
                    select case when scope.closed_until is null then t.weight end as weight, t.slug, scope.limited,
                        scope.rated, d.by_key is not null as keyed, d.slots > 1 as sized, scope.closed_until
                    from fairlead.tenants t, fairlead.job_definitions d, lateral (
                        select limits.are_set as limited, limits.are_rates as rated, case
                            when not limits.are_set and not limits.are_rates and d.prefers is null then null
                            when resumed and array[t.id::text, d.id::text, d.id || ' ' || t.id] && held_limits then 'infinity'
                            else greatest(
                                case when limits.are_set or limits.are_rates then fairlead.closed_until(
                                    t.id, t.max_running, t.rate, d.id, d.max_running, d.rate, d.max_running_per_tenant,
                                    d.rate_per_tenant, claimed_at) end,
                                case when not d.prefers <@ claim.labels then fairlead.left_until(
                                    d.id, t.id, hop.scheduled_for, claim.prefer_seconds, claimed_at) end)
                            end as closed_until
                        from (values (
                            coalesce(t.max_running, d.max_running, d.max_running_per_tenant) is not null,
                            coalesce(t.rate, d.rate, d.rate_per_tenant) is not null)) as limits(are_set, are_rates)
                    ) scope
                    where (claim.served is null or hop.definition_id = any(claim.served)
                            or (claim.served_pairs is not null
                                and hop.definition_id || ' ' || hop.tenant_id = any(claim.served_pairs)))
                        and t.id = hop.tenant_id and d.id = hop.definition_id
                        and t.paused_at is null and d.paused_at is null
                        and (d.requires is null or d.requires <@ claim.labels)
                        and (claim.most_slots is null or d.slots <= claim.most_slots)
                ) gate on true
                where w.closed < closed_limit and (w.open_tenants < claim.wanted or hop.tenant_id = w.open_tenant)
            )
            select array_agg(w.tenant_id) filter (where w.weight is not null),
                array_agg(w.definition_id) filter (where w.weight is not null),
                array_agg(w.weight) filter (where w.weight is not null),
                array_agg(w.slug) filter (where w.weight is not null),
                array_agg(w.priority) filter (where w.weight is not null),
                array_agg(w.scheduled_for) filter (where w.weight is not null),
                array_agg(w.job_id) filter (where w.weight is not null),
                coalesce(bool_or(w.limited) filter (where w.weight is not null), false),
                coalesce(bool_or(w.rated) filter (where w.weight is not null), false), coalesce(bool_or(w.keyed), false),
                coalesce(bool_or(w.sized), false) and claim.most_slots is not null,
                coalesce(bool_or(w.closed_until = 'infinity'), false),
                least(opens_at, min(w.closed_until) filter (where w.closed_until < 'infinity')), max(w.closed)
            into tenants, definitions, weights, slugs, priorities, due_times, job_ids, limited, rated, keyed, sized, crowded, opens_at,
                closed
            from walk w;
            if closed >= closed_limit then
                -- start again, and visit only pairs whose gates are open
                closed_limit := 2147483647;
                open_definitions := fairlead.open_definitions(
                    claim.served, claim.served_pairs, claimed_at, claim.labels, claim.most_slots);
                if open_definitions is not null then
                    own_definitions := array(
                        select d.id from fairlead.job_definitions d
                        where d.id = any(open_definitions) and (d.prefers is null or d.prefers <@ claim.labels));
                    select f.tenants, least(opens_at, f.opens_at) into full_tenants, opens_at
                    from fairlead.full_tenants(claimed_at) f;
                    opens_at := least(opens_at, (
                        select min(fairlead.rate_opens_at(d.id, null, d.rate, claimed_at))
                        from fairlead.job_definitions d where d.rate is not null));
                end if;
                continue;
            end if;
            if open_definitions is not null and not crowded then
                -- the walk left out full definitions and tenants
                crowded := full_tenants is not null
                    or exists (select from fairlead.job_definitions d where d.max_running is not null);
            end if;
        else
            -- A host belongs to one tenant: there is nothing to share, and all its jobs are one turn.
            with recursive walk as (
                select nil_id as tenant_id, nil_id as definition_id
                union all
                select hop.tenant_id, hop.definition_id from walk w cross join lateral (
                    select r.tenant_id, r.definition_id from fairlead.ready r
                    where r.host_id = claim.host and (r.tenant_id, r.definition_id) > (w.tenant_id, w.definition_id)
                    order by r.host_id, r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1) hop
            )
            select array_agg(w.tenant_id), array_agg(w.definition_id), array_agg(t.slug), true,
                bool_or(coalesce(t.rate, d.rate, d.rate_per_tenant) is not null), bool_or(d.by_key is not null),
                bool_or(d.slots > 1) and claim.most_slots is not null, min(h.max_running)
            into tenants, definitions, slugs, limited, rated, keyed, sized, host_limit
            from walk w, fairlead.tenants t, fairlead.job_definitions d, fairlead.hosts h
            where (claim.served is null or w.definition_id = any(claim.served)
                    or (claim.served_pairs is not null
                        and w.definition_id || ' ' || w.tenant_id = any(claim.served_pairs)))
                and t.id = w.tenant_id and d.id = w.definition_id and h.id = claim.host
                and t.paused_at is null and d.paused_at is null and h.paused_at is null
                and (d.requires is null or d.requires <@ fairlead.label_texts(h.labels))
                and (claim.most_slots is null or d.slots <= claim.most_slots);
        end if;
        if tenants is null then
            return json_build_object(
                'again', again, 'busy', held_limits <> '{}' or key_busy, 'crowded', crowded or resumed,
                'opens_in', date_part('epoch', opens_at - claimed_at));
        end if;

        -- 2. Limits. The locks of the limited scopes make the counts exact: see functions/budgets.sql.
        room := null;
        if limited then
            select array_agg(t.max_running order by p.n), array_agg(fairlead.definition_limit(d.id, d.max_running) order by p.n),
                array_agg(d.max_running_per_tenant order by p.n)
            into tenant_limits, definition_limits, pair_limits
            from unnest(tenants, definitions) with ordinality as p(tenant_id, definition_id, n)
            join fairlead.tenants t on t.id = p.tenant_id
            join fairlead.job_definitions d on d.id = p.definition_id;
            select b.missed, b.places into held_limits, room from fairlead.budgets(
                tenants, definitions, tenant_limits, definition_limits, pair_limits, claim.host, host_limit,
                claim.wanted, held_limits) b;
        end if;
        buckets := null;
        if rated or system_rate is not null then
            select b.missed, b.room, b.buckets, b.opens_at into held_limits, room, buckets, closed_rate
            from fairlead.rate_room(tenants, definitions, system_rate, held_limits, room) b;
            opens_at := least(opens_at, closed_rate);
            limited := limited or buckets is not null;
        end if;
        most_jobs := least(claim.wanted, (room ->> 'system')::integer);

        -- 3. Turns between tenants. Rows that another claim has locked are skipped.
        if claim.host is not null then
            select array_agg(h.spot order by h.priority, h.scheduled_for, h.job_id) into ready_rows
            from (
                select h.*
                from unnest(tenants, definitions) as p(tenant_id, definition_id)
                cross join lateral (
                    select r.ctid as spot, r.priority, r.scheduled_for, r.job_id from fairlead.ready r
                    where r.host_id = claim.host and r.tenant_id = p.tenant_id and r.definition_id = p.definition_id
                    order by r.host_id, r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id
                    limit least(most_jobs, (room ->> claim.host::text)::integer,
                        (room ->> p.definition_id::text)::integer,
                        (room ->> (p.definition_id || ' ' || p.tenant_id))::integer)
                    for update skip locked) h
                order by h.priority, h.scheduled_for, h.job_id
                limit least(most_jobs, (room ->> claim.host::text)::integer, (room ->> tenants[1]::text)::integer)
            ) h;
        elsif cardinality(tenants) = 1 then
            -- one pair, as on a quiet system: its first jobs, without turns
            most := most_jobs;
            if limited then
                most := least(most, (room ->> tenants[1]::text)::integer, (room ->> definitions[1]::text)::integer,
                    (room ->> (definitions[1] || ' ' || tenants[1]))::integer);
            end if;
            select array_agg(h.spot), tenants[1] into ready_rows, next_tenant
            from (
                select r.ctid as spot from fairlead.ready r
                where r.host_id is null and r.tenant_id = tenants[1] and r.definition_id = definitions[1]
                    and (r.priority, r.scheduled_for, r.job_id) >= (priorities[1], due_times[1], job_ids[1])
                order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id
                limit most for update skip locked) h;
            if sized and ready_rows is not null then
                select f.ready_rows, f.short_of into ready_rows, short_of
                from fairlead.fit_slots(ready_rows, claim.wanted, null) f;
            end if;
            next_credit := case when tenants[1] = claim.at_tenant and claim.credit > 0
                then least(claim.credit, weights[1]) else weights[1] end - cardinality(ready_rows);
            if next_credit < 0 then
                next_credit := weights[1] - 1 - (-next_credit - 1) % weights[1];
            end if;
        else
            -- Each tenant has `weight` jobs in each round (in the first round, what is left of its last turn), by priority
            -- and age. The jobs are chosen round by round, and within a round in the order of the circle.
            with numbered as (
                select p.tenant_id, p.definition_id, p.weight, p.priority, p.scheduled_for, p.job_id, p.n,
                    row_number() over (partition by p.tenant_id order by p.n) = 1 as is_first,
                    min(p.n) over (partition by p.tenant_id) as place,
                    least(
                        (room ->> p.tenant_id::text)::integer,
                        (room ->> p.definition_id::text)::integer,
                        (room ->> (p.definition_id || ' ' || p.tenant_id))::integer) as budget
                from unnest(tenants, definitions, weights, priorities, due_times, job_ids) with ordinality
                    as p(tenant_id, definition_id, weight, priority, scheduled_for, job_id, n)
            ), pair as materialized (
                select n.tenant_id, n.definition_id, n.weight, n.priority, n.scheduled_for, n.job_id, n.place, n.budget,
                    -- a tenant's fair share of this claim; what others leave of theirs is for the next claim
                    greatest(n.weight, ceil(
                        claim.wanted::float8 * n.weight / sum(n.weight) filter (where n.is_first) over ())::integer) as part,
                    case when n.tenant_id = claim.at_tenant and claim.credit > 0
                        then least(claim.credit, n.weight) else n.weight end as first_turn
                from numbered n
            ), head as (
                select p.tenant_id, p.definition_id, p.weight, p.place, p.first_turn, h.spot, h.priority, h.scheduled_for, h.job_id
                from pair p
                cross join lateral (
                    select r.ctid as spot, r.priority, r.scheduled_for, r.job_id from fairlead.ready r
                    where r.host_id is null and r.tenant_id = p.tenant_id and r.definition_id = p.definition_id
                        and (r.priority, r.scheduled_for, r.job_id) >= (p.priority, p.scheduled_for, p.job_id)
                    order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id
                    limit least(p.part, most_jobs, p.budget) for update skip locked) h
            ), ranked as (
                select h.*,
                    row_number() over (partition by h.tenant_id order by h.priority, h.scheduled_for, h.job_id) as of_tenant
                from head h
            ), turned as (
                select r.spot, r.tenant_id, r.definition_id, r.weight, r.first_turn, r.place, r.of_tenant,
                    case when r.of_tenant <= r.first_turn then 0
                        else 1 + (r.of_tenant - r.first_turn - 1) / r.weight end as round
                from ranked r
                where not limited
                    or coalesce(r.of_tenant <= (room ->> r.tenant_id::text)::integer, true)
            ), queued as (
                -- tenants that share the limit of a definition take turns in it, too: the first jobs chosen are the first within it
                select t.*, case when limited then row_number() over (
                    partition by t.definition_id order by t.round, t.place, t.of_tenant) end as of_definition
                from turned t
            ), dealt as (
                select q.spot, q.tenant_id, q.weight, q.first_turn, q.place, q.of_tenant, q.round
                from queued q
                where not limited
                    or coalesce(q.of_definition <= (room ->> q.definition_id::text)::integer, true)
                order by q.round, q.place, q.of_tenant
                limit most_jobs
            )
            select array_agg(d.spot order by d.round, d.place, d.of_tenant),
                (array_agg(d.tenant_id order by d.round desc, d.place desc))[1],
                (array_agg(case when d.round = 0 then d.first_turn - d.of_tenant
                    else d.weight - 1 - (d.of_tenant - d.first_turn - 1) % d.weight end
                    order by d.round desc, d.place desc, d.of_tenant desc))[1],
                array_agg(array[d.round, d.place, d.of_tenant, case when d.round = 0 then d.first_turn - d.of_tenant
                    else d.weight - 1 - (d.of_tenant - d.first_turn - 1) % d.weight end]::integer[]
                    order by d.round, d.place, d.of_tenant) filter (where sized)
            into ready_rows, next_tenant, next_credit, turns
            from dealt d;
        end if;
        in_turn := ready_rows;
        if sized and ready_rows is not null and (claim.host is not null or cardinality(tenants) > 1) then
            select f.ready_rows, f.short_of, f.short_tenant, f.short_credit
            into ready_rows, short_of, short_tenant, short_credit
            from fairlead.fit_slots(ready_rows, claim.wanted, turns) f;
            if short_of is not null then
                -- the next claim begins with the job that did not fit
                next_tenant := short_tenant;
                next_credit := short_credit;
            end if;
        end if;
        if any_expired and ready_rows is not null then
            select e.ready_rows, e.canceled into ready_rows, dropped from fairlead.leave_expired(ready_rows) e;
            again := again or dropped > 0;
        end if;
        if keyed and ready_rows is not null then
            select k.ready_rows, key_busy or k.is_locked, again or k.held > 0, k.moment
            into ready_rows, key_busy, again, started_at
            from fairlead.keep_keys(ready_rows) k;
        end if;
        exit when ready_rows is not null or short_of is not null or claim.host is not null;
        -- Nothing to take: another claim was faster, or holds the limits. Go on after the last tenant; the walk always ends
        -- with a tenant's last pair.
        resumed := true;
        from_tenant := tenants[cardinality(tenants)];
        from_definition := max_id;
        from_lap := case when (from_tenant, max_id) > (start_tenant, start_definition) then 0 else 1 end;
    end loop;
    if ready_rows is null then
        return json_build_object(
            'cursor', case when short_tenant is not null and claim.host is null then json_build_array(next_tenant, next_credit) end,
            'again', again, 'busy', short_of is null and (held_limits <> '{}' or key_busy), 'crowded', true,
            'short_of', short_of, 'opens_in', date_part('epoch', opens_at - claimed_at));
    end if;

    -- 4. Take. All locks are held: the starts are later than the ends and the starts that were counted.
    claimed_at := case when keyed then coalesce(started_at, clock_timestamp()) else clock_timestamp() end;
    if buckets is not null then
        ready_rows := fairlead.spend_rates(ready_rows, buckets, claimed_at, in_turn);
        if ready_rows is null then
            return json_build_object('again', again, 'busy', true, 'crowded', crowded);
        end if;
    end if;
    lease_ends := claimed_at + make_interval(secs => claim.lease_seconds);
    definition_ids := array(select distinct d from unnest(definitions) d);
    with gone as (
        delete from fairlead.ready r where r.ctid = any(ready_rows)
        returning r.job_id
    ), started as (
        -- each record is looked up by its id, whatever the table's statistics
        select j.* from gone g cross join lateral (
            select j.id, j.tenant_id, j.definition_id, j.host_id, j.attempt_count + 1 as attempt_no, j.priority, j.payload,
                j.max_attempts, j.failure_count, j.lost_count, greatest(j.scheduled_for, j.queued_at) as scheduled_for,
                j.parent_id, j.correlation_id, j.trace, j.workflow_run_id, j.timeout_seconds, j.secret_paths, j.limit_key
            from fairlead.job_records j where j.id = g.job_id limit 1) j
    ), leased as (
        insert into fairlead.leases (
            job_id, attempt_no, token, worker_id, tenant_id, definition_id, host_id, started_at, expires_at, queue_ms,
            limit_key)
        select s.id, s.attempt_no, claim.token, claim.worker, s.tenant_id, s.definition_id, s.host_id, claimed_at,
            lease_ends, greatest(0, date_part('epoch', claimed_at - s.scheduled_for) * 1000), s.limit_key
        from started s
    ), counted as (
        insert into fairlead.counts (tenant_id, definition_id, minute, queued, running)
        select s.tenant_id, s.definition_id, date_trunc('minute', claimed_at), -count(*), count(*)
        from started s group by s.tenant_id, s.definition_id
    )
    -- 5. Answer.
    select json_build_object(
        'cursor', case when claim.host is null then json_build_array(next_tenant, next_credit) end,
        'again', again, 'busy', held_limits <> '{}' or key_busy, 'crowded', crowded or resumed or short_of is not null,
        'short_of', short_of, 'opens_in', date_part('epoch', opens_at - claimed_at),
        'tenants', (select json_object_agg(p.id, p.slug) from unnest(tenants, slugs) as p(id, slug)),
        'definitions', (
            select json_agg(json_build_array(d.key, d.timeout_seconds, d.backoff, d.secret_paths, d.slots) order by p.n)
            from unnest(definition_ids) with ordinality as p(id, n), fairlead.job_definitions d where d.id = p.id),
        'steps', json_agg(s.id) filter (where s.workflow_run_id is not null),
        'timeouts', json_object_agg(s.id, s.timeout_seconds) filter (where s.timeout_seconds is not null),
        'secrets', json_object_agg(s.id, s.secret_paths) filter (where s.secret_paths is not null),
        'traces', json_object_agg(s.id, s.trace) filter (where s.trace is not null),
        'waits', json_object_agg(s.id, date_part('epoch', claimed_at - s.scheduled_for)) filter (where claim.with_waits)),
        -- Text, since json_build_array looks the types of its arguments up for every job: a quarter of the claim's time.
        -- For most jobs the list ends with max_attempts: the worker knows the defaults of the other values.
        string_agg(
            '["' || s.id::text || '",' || s.attempt_no::text || ',"' || s.tenant_id::text || '",'
            || (array_position(definition_ids, s.definition_id) - 1)::text || ',' || s.payload::text || ','
            || s.max_attempts::text || case
                when s.failure_count = 0 and s.lost_count = 0 and s.parent_id is null and s.correlation_id is null then ']'
                else ',' || s.failure_count::text || ',' || s.lost_count::text || ','
                    || coalesce('"' || s.parent_id::text || '"', 'null') || ','
                    || coalesce(to_json(s.correlation_id)::text, 'null') || ']' end,
            ',' order by s.priority, s.scheduled_for, s.id)
    into answer, job_list from started s;
    return left(answer::text, -1) || ',"jobs":[' || job_list || ']}';
end
$$;

CREATE FUNCTION fairlead.claim_suspect(worker text, token uuid, lease_seconds double precision, served uuid[], served_pairs text[] DEFAULT NULL::text[], idle boolean DEFAULT NULL::boolean, with_waits boolean DEFAULT false, only_look boolean DEFAULT false, labels jsonb DEFAULT '{}'::jsonb, most_slots integer DEFAULT NULL::integer) RETURNS json
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
declare
    first_one constant uuid := '00000000-0000-0000-0000-000000000000';
    -- an accused job that fell due before this has waited long enough
    long_ago constant timestamptz := clock_timestamp() - make_interval(secs => claim_suspect.lease_seconds * 10);
    is_idle constant boolean := coalesce(claim_suspect.idle, true) or claim_suspect.only_look;
    pair record;
    left_over record;
    spot tid;
    job uuid;
    now_on timestamptz;
    answer json;
begin
    perform fairlead.need_read_committed();
    if not (select s.online from fairlead.system s) then
        return '{}';
    end if;

    for pair in
        with recursive walk as (
            select first_one as tenant_id, first_one as definition_id
            union all
            select hop.tenant_id, hop.definition_id from walk w cross join lateral (
                select l.tenant_id, l.definition_id from fairlead.later l
                where l.alone and (l.tenant_id, l.definition_id) > (w.tenant_id, w.definition_id)
                order by l.tenant_id, l.definition_id, l.due_at, l.job_id limit 1) hop
        )
        select t.id as tenant_id, d.id as definition_id, t.slug, head.due_at,
            t.max_running as tenant_limit, fairlead.definition_limit(d.id, d.max_running) as definition_limit, d.max_running_per_tenant as pair_limit,
            coalesce(t.max_running, d.max_running, d.max_running_per_tenant) is not null as limited,
            coalesce(t.rate, d.rate, d.rate_per_tenant, d.by_key, (select s.rate from fairlead.system s)) is not null
                as has_more_limits
        from walk w, fairlead.tenants t, fairlead.job_definitions d, lateral (
            select l.due_at from fairlead.later l join fairlead.job_records j on j.id = l.job_id
            where l.alone and l.tenant_id = w.tenant_id and l.definition_id = w.definition_id
                and l.due_at <= clock_timestamp() and (is_idle or not j.accused or l.due_at < long_ago)
            order by l.due_at, l.job_id limit 1) head
        where (claim_suspect.served is null or w.definition_id = any(claim_suspect.served)
                or (claim_suspect.served_pairs is not null
                    and w.definition_id || ' ' || w.tenant_id = any(claim_suspect.served_pairs)))
            and t.id = w.tenant_id and d.id = w.definition_id and t.paused_at is null and d.paused_at is null
            and (d.requires is null or d.requires <@ claim_suspect.labels)
            and (claim_suspect.most_slots is null or d.slots <= claim_suspect.most_slots)
            and fairlead.closed_until(
                t.id, t.max_running, t.rate, d.id, d.max_running, d.rate, d.max_running_per_tenant, d.rate_per_tenant,
                clock_timestamp()) is null
        order by head.due_at
    loop
        if claim_suspect.only_look then
            return json_build_object('waiting', true);
        end if;
        if claim_suspect.idle is null and exists (
                select from fairlead.leases l where l.worker_id = claim_suspect.worker) then
            return '{}';
        end if;
        if pair.limited then
            select b.* into left_over from fairlead.budgets(
                array[pair.tenant_id], array[pair.definition_id], array[pair.tenant_limit], array[pair.definition_limit],
                array[pair.pair_limit], null, null, 1, '{}') b;
            continue when left_over.missed <> '{}' or least(
                (left_over.places ->> pair.tenant_id::text)::integer,
                (left_over.places ->> pair.definition_id::text)::integer,
                (left_over.places ->> (pair.definition_id || ' ' || pair.tenant_id))::integer) < 1;
        end if;
        select l.ctid, l.job_id into spot, job from fairlead.later l join fairlead.job_records j on j.id = l.job_id
        where l.alone and l.tenant_id = pair.tenant_id and l.definition_id = pair.definition_id
            and l.due_at <= clock_timestamp() and (is_idle or not j.accused or l.due_at < long_ago)
        order by l.due_at, l.job_id limit 1 for update of l skip locked;
        now_on := case when spot is null then null
            when pair.has_more_limits then fairlead.start_alone(job) else clock_timestamp() end;
        exit when now_on is not null;
        spot := null;
    end loop;
    if spot is null then
        return '{}';
    end if;

    with gone as (
        delete from fairlead.later l where l.ctid = spot
        returning l.job_id
    ), started as (
        select j.*, j.attempt_count + 1 as attempt_no, least(
            least(claim_suspect.lease_seconds / 3, 10) * 2 ^ greatest(0, least(j.suspected - 2, 10)), 300,
            coalesce(j.timeout_seconds, d.timeout_seconds)) as probation,
            json_build_array(d.key, d.timeout_seconds, d.backoff, d.secret_paths, d.slots) as terms
        from gone g
        cross join lateral (select j.* from fairlead.job_records j where j.id = g.job_id limit 1) j
        join fairlead.job_definitions d on d.id = j.definition_id
    ), leased as (
        insert into fairlead.leases (
            job_id, attempt_no, token, worker_id, tenant_id, definition_id, host_id, started_at, expires_at,
            probation_until, queue_ms, limit_key)
        select s.id, s.attempt_no, claim_suspect.token, claim_suspect.worker, s.tenant_id, s.definition_id, s.host_id,
            now_on, now_on + make_interval(secs => claim_suspect.lease_seconds), now_on + make_interval(secs => s.probation),
            greatest(0, date_part('epoch', now_on - greatest(s.scheduled_for, s.queued_at)) * 1000), s.limit_key
        from started s
    ), counted as (
        insert into fairlead.counts (tenant_id, definition_id, minute, queued, running)
        select s.tenant_id, s.definition_id, date_trunc('minute', now_on), -1, 1 from started s
    )
    select json_build_object(
        'tenants', json_build_object(s.tenant_id, pair.slug),
        'definitions', json_build_array(s.terms),
        'jobs', json_build_array(json_build_array(
            s.id, s.attempt_no, s.tenant_id, 0, s.payload, s.max_attempts, s.failure_count, s.lost_count, s.parent_id,
            s.correlation_id)),
        'steps', case when s.workflow_run_id is not null then json_build_array(s.id) end,
        'timeouts', case when s.timeout_seconds is not null then json_build_object(s.id, s.timeout_seconds) end,
        'secrets', case when s.secret_paths is not null then json_build_object(s.id, s.secret_paths) end,
        'traces', case when s.trace is not null then json_build_object(s.id, s.trace) end,
        'waits', case when claim_suspect.with_waits
            then json_build_object(s.id, date_part('epoch', now_on - greatest(s.scheduled_for, s.queued_at))) end,
        'probations', json_build_object(s.id, s.probation))
    into answer from started s;
    return answer;
end
$$;

CREATE FUNCTION fairlead.closed_until(tenant uuid, tenant_most integer, tenant_rate jsonb, definition uuid, definition_most integer, definition_rate jsonb, pair_most integer, pair_rate jsonb, moment timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    AS $$
begin
    if tenant_most is not null and tenant_most <= fairlead.running_in('tenant', tenant, null) then
        return 'infinity';
    elsif definition_most is not null
        and fairlead.definition_limit(definition, definition_most) <= fairlead.running_in('definition', definition, null) then
        return 'infinity';
    elsif pair_most is not null and pair_most <= fairlead.running_in('definition_tenant', definition, tenant) then
        return 'infinity';
    elsif tenant_rate is null and definition_rate is null and pair_rate is null then
        return null;
    end if;
    return greatest(
        case when tenant_rate is not null
            then fairlead.rate_opens_at(null, tenant, tenant_rate, moment) end,
        case when definition_rate is not null
            then fairlead.rate_opens_at(definition, null, definition_rate, moment) end,
        case when pair_rate is not null
            then fairlead.rate_opens_at(definition, tenant, pair_rate, moment) end);
end
$$;

CREATE FUNCTION fairlead.complete_waits(waits jsonb) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    jobs uuid[];
begin
    perform from fairlead.job_steps s
    join jsonb_to_recordset(complete_waits.waits) as w(job_id uuid, branch text, position integer)
        on s.job_id = w.job_id and s.branch = w.branch and s.position = w.position
    order by s.job_id, s.branch, s.position for no key update of s;
    with done as (
        update fairlead.job_steps s
        set status = w.status, result = w.result, error = w.error, ended_at = clock_timestamp(),
            attempt_no = case when w.status = 'retry' then 0 else s.attempt_no end
        from jsonb_to_recordset(complete_waits.waits)
            as w(job_id uuid, branch text, position integer, status text, result jsonb, error jsonb)
        where s.job_id = w.job_id and s.branch = w.branch and s.position = w.position and s.status = 'waiting'
        returning s.job_id
    )
    select array_agg(distinct job_id order by job_id) into jobs from done;
    return case when jobs is null then 0 else fairlead.wake_functions(jobs) end;
end
$$;

CREATE FUNCTION fairlead.cost_of(cost text, payload jsonb) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when cost is not null and jsonb_typeof(payload #> fairlead.path_of_pointer(cost)) = 'number'
        then greatest(0, (payload #>> fairlead.path_of_pointer(cost))::float8) else 1 end
$$;

CREATE FUNCTION fairlead.database_identity() RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select concat(
        case when has_function_privilege('pg_control_system()', 'execute')
            then (select c.system_identifier from pg_control_system() c) end,
        '/', (select d.oid from pg_database d where d.datname = current_database()))
$$;

CREATE FUNCTION fairlead.debounce_job(tenant uuid, definition uuid, new_job uuid, debounce jsonb, payload jsonb, host uuid, resource uuid, new_key uuid, expires_in double precision, by_key jsonb, OUT moved uuid, OUT due_at timestamp with time zone) RETURNS record
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    hash constant bytea := sha256(convert_to(concat_ws(' ', definition, debounce_job.debounce ->> 'key'), 'UTF8'));
    pause constant interval := make_interval(secs => (debounce_job.debounce ->> 'seconds')::float8);
    is_last constant boolean := coalesce(debounce_job.debounce ->> 'payload', 'last') = 'last';
    moment timestamptz;
    holder uuid;
    first timestamptz;
    job record;
    spot record;
    was_ready boolean;
begin
    insert into fairlead.debounces as d (tenant_id, key_hash, job_id, first_at, due_at)
    values (debounce_job.tenant, hash, debounce_job.new_job, clock_timestamp(), clock_timestamp() + pause)
    on conflict (tenant_id, key_hash) do update set due_at = d.due_at
    returning d.job_id, d.first_at into holder, first;
    moment := clock_timestamp();
    if holder = debounce_job.new_job then
        debounce_job.due_at := first + pause;
        return;
    end if;

    -- A few rounds: the stager or a limit may move the row between the two tables just now.
    for _ in 1..20 loop
        select j.* into job from fairlead.job_records j
        where j.id = holder and j.status = 'queued' and j.attempt_count = 0 and j.cancel_requested_at is null
            and not exists (select from fairlead.leases l where l.job_id = j.id);
        exit when not found;
        delete from fairlead.later l where l.due_at = job.scheduled_for and l.job_id = holder
        returning l.due_at as at, true as is_later, l.limit_key into spot;
        exit when found;
        delete from fairlead.ready r
        where r.job_id = holder and r.tenant_id = job.tenant_id and r.definition_id = job.definition_id
            and r.priority = job.priority and r.host_id is not distinct from job.host_id
            and r.scheduled_for in (job.scheduled_for, greatest(job.scheduled_for, job.queued_at))
        returning r.scheduled_for as at, false as is_later, r.limit_key into spot;
        exit when found;
    end loop;
    if spot is null then
        update fairlead.debounces d
        set job_id = debounce_job.new_job, first_at = moment, due_at = moment + pause
        where d.tenant_id = debounce_job.tenant and d.key_hash = hash;
        debounce_job.due_at := moment + pause;
        return;
    end if;

    was_ready := not spot.is_later;
    -- a job that has waited for its longest time stays where it is, and only gets the payload
    debounce_job.due_at := least(
        moment + pause, first + make_interval(secs => (debounce_job.debounce ->> 'max_seconds')::float8));
    if debounce_job.due_at <= moment then
        debounce_job.due_at := spot.at;
    else
        spot.is_later := true;
    end if;
    if is_last then
        job.payload := debounce_job.payload;
        job.host_id := debounce_job.host;
        job.resource_id := debounce_job.resource;
        job.limit_key := debounce_job.new_key;
    end if;
    if spot.is_later then
        job.scheduled_for := debounce_job.due_at;
        insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, limit_key)
        values (holder, job.tenant_id, job.definition_id, job.host_id, job.priority, debounce_job.due_at, job.limit_key);
    else
        insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
        values (holder, job.tenant_id, job.definition_id, job.host_id, job.priority, debounce_job.due_at, job.limit_key);
    end if;
    if job.expires_at is not null then
        delete from fairlead.expiries e where e.expires_at = job.expires_at and e.job_id = holder;
        job.expires_at := null;
    end if;
    if debounce_job.expires_in is not null then
        job.expires_at := debounce_job.due_at + make_interval(secs => debounce_job.expires_in);
        insert into fairlead.expiries (expires_at, job_id, tenant_id) values (job.expires_at, holder, job.tenant_id);
    end if;
    update fairlead.job_records j
    set scheduled_for = job.scheduled_for, payload = job.payload, host_id = job.host_id, resource_id = job.resource_id,
        limit_key = job.limit_key, expires_at = job.expires_at
    where j.id = holder;
    update fairlead.debounces d set due_at = debounce_job.due_at
    where d.tenant_id = debounce_job.tenant and d.key_hash = hash;
    moved := holder;
    -- its place in the line of its key; in strict order it also had one while it waited
    if (was_ready and spot.is_later) or job.limit_key is distinct from spot.limit_key then
        perform fairlead.let_held_go(job.definition_id, job.tenant_id, spot.limit_key, debounce_job.by_key);
    end if;
end
$$;

CREATE FUNCTION fairlead.definition_id(key text) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    -- version 8 and the variant of RFC 9562, for ids of an application's own making
    select overlay(overlay(left(encode(sha256(convert_to(key, 'UTF8')), 'hex'), 32) placing '8' from 13) placing '8' from 17)::uuid
$$;

CREATE FUNCTION fairlead.definition_limit(definition uuid, most integer) RETURNS integer
    LANGUAGE plpgsql STABLE
    AS $$
declare
    allotted integer;
begin
    if definition_limit.most is null then
        return null;
    end if;
    select a.number into allotted from fairlead.allotments a where a.definition_id = definition_limit.definition;
    if found then
        return least(definition_limit.most, allotted);
    end if;
    -- definitions of certain tenants are not divided: their tenants are usually in one cell
    return case when (select s.is_allotted from fairlead.system s) and exists (
            select from fairlead.job_definitions d where d.id = definition_limit.definition and d.only_tenants is null)
        then 0 else definition_limit.most end;
end
$$;

CREATE FUNCTION fairlead.definitions_of(keys text[]) RETURNS json
    LANGUAGE sql STABLE
    AS $$
    select json_object_agg(d.key, json_build_array(
        d.id, d.key, d.kind, d.is_active, d.resource_pointer, d.default_priority, d.max_attempts, d.arg_schema::text,
        d.only_tenants))
    from fairlead.job_definitions d where d.key = any(keys)
$$;

CREATE FUNCTION fairlead.drop_audit_day(keep_days integer) RETURNS text
    LANGUAGE plpgsql
    AS $_$
declare
    oldest text;
    shard  bigint;
begin
    if fairlead.needs_coordinator() then
        -- The limit of waits for locks does not reach the coordinator: look first whether the log is free. The lock is
        -- given back at once, since the coordinator needs it, and with it the right to take it.
        execute 'select shardid from pg_catalog.pg_dist_shard where logicalrelid = $1'
        into shard using 'fairlead.audit_log'::regclass;
        perform set_config('citus.enable_manual_changes_to_shards', 'on', true);
        begin
            execute format('grant update on fairlead.%I to current_user', 'audit_log_' || shard);
            execute format('lock table fairlead.%I in access exclusive mode', 'audit_log_' || shard);
            raise exception using errcode = 'FL003';
        exception when sqlstate 'FL003' then null;
        end;
        return fairlead.run_on_coordinator(format('select fairlead.drop_audit_day(%s)', keep_days));
    end if;
    select c.relname into oldest
    from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'fairlead.audit_log'::regclass
        and c.relname ~ '^audit_log_[0-9]{8}$'
        and pg_catalog.pg_has_role(c.relowner, 'usage')
        and right(c.relname, 8) < to_char((timezone('UTC', clock_timestamp()))::date - keep_days, 'YYYYMMDD')
    order by c.relname limit 1;
    if oldest is not null then
        execute format('drop table fairlead.%I', oldest);
    end if;
    return oldest;
end
$_$;

CREATE FUNCTION fairlead.drop_audit_rest(keep_days integer, most integer) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    since constant timestamptz :=
        timezone('UTC', ((timezone('UTC', clock_timestamp()))::date - keep_days)::timestamp);
    gone bigint;
    spread constant boolean := fairlead.is_distributed();
begin
    if not exists (
            select from pg_catalog.pg_class c
            where c.oid = 'fairlead.audit_log_rest'::regclass and pg_catalog.pg_has_role(c.relowner, 'usage'))
        or not exists (select from fairlead.audit_log_rest r where r.at < since) then
        return 0;
    end if;
    if spread then
        grant delete on fairlead.audit_log_rest to current_user;
    else
        alter table fairlead.audit_log_rest disable trigger audit_rows_stay;
    end if;
    delete from fairlead.audit_log_rest where ctid = any(array(
        select r.ctid from fairlead.audit_log_rest r where r.at < since limit most));
    get diagnostics gone = row_count;
    if spread then
        revoke delete on fairlead.audit_log_rest from current_user;
    else
        alter table fairlead.audit_log_rest enable trigger audit_rows_stay;
    end if;
    return gone;
end
$$;

CREATE FUNCTION fairlead.edit_waiting(job uuid, actor text, payload jsonb DEFAULT NULL::jsonb, priority integer DEFAULT NULL::integer, scheduled_for timestamp with time zone DEFAULT NULL::timestamp with time zone, with_target boolean DEFAULT false, host_id uuid DEFAULT NULL::uuid, resource_id uuid DEFAULT NULL::uuid, tags text[] DEFAULT NULL::text[], OUT outcome text, OUT waits boolean, OUT released bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    old record;
    place record;
    by_key jsonb;
    moment constant timestamptz := clock_timestamp();
    new_at timestamptz;
    new_host uuid;
    new_key uuid;
    new_expiry timestamptz;
    is_held boolean;
begin
    outcome := 'not_waiting';
    select j.tenant_id, j.definition_id, j.host_id, j.resource_id, j.priority, j.scheduled_for, j.queued_at, j.limit_key,
        j.tags, j.expires_at
    into old from fairlead.job_records j where j.id = edit_waiting.job and j.status = 'queued';
    if not found then
        return;
    end if;
    new_key := old.limit_key;
    if edit_waiting.payload is not null then
        select d.by_key into by_key from fairlead.job_definitions d where d.id = old.definition_id;
        new_key := fairlead.limit_key_of(by_key, edit_waiting.payload);
        -- before the job leaves its place: a refusal changes nothing
        if new_key is distinct from old.limit_key and new_key is not null and fairlead.apply_key_strategy(
                old.definition_id, old.tenant_id, new_key, by_key, edit_waiting.job, edit_waiting.actor) is not null then
            outcome := 'key_taken';
            return;
        end if;
    end if;

    with due as materialized (
        -- a row for each time that the queue may have: see cancel_queued in store/jobs.sql
        select distinct unnest(array[old.scheduled_for, greatest(old.scheduled_for, old.queued_at)]) as at
    ), from_tenant as (
        delete from fairlead.ready r using due
        where r.host_id is null and r.tenant_id = old.tenant_id and r.definition_id = old.definition_id
            and r.priority = old.priority and r.scheduled_for = due.at and r.job_id = edit_waiting.job
        returning false as alone, false as held, false as sleeps
    ), from_host as (
        delete from fairlead.ready r using due
        where r.host_id = old.host_id and r.tenant_id = old.tenant_id and r.definition_id = old.definition_id
            and r.priority = old.priority and r.scheduled_for = due.at and r.job_id = edit_waiting.job
        returning false as alone, false as held, false as sleeps
    ), from_later as (
        delete from fairlead.later l where l.due_at = old.scheduled_for and l.job_id = edit_waiting.job
        returning l.alone, l.held, l.waits
    )
    select p.alone, p.held, p.sleeps into place
    from (table from_tenant union all table from_host union all table from_later) p;
    if not found then
        return;
    end if;

    new_at := case when edit_waiting.scheduled_for is null then old.scheduled_for
        else greatest(edit_waiting.scheduled_for, moment) end;
    new_host := case when edit_waiting.with_target then edit_waiting.host_id else old.host_id end;
    is_held := place.held and new_key is not distinct from old.limit_key and new_at <= moment;
    waits := place.alone or is_held or new_at > moment;
    -- a job that has to start in time has as long after its new time
    new_expiry := old.expires_at + (new_at - greatest(old.scheduled_for, old.queued_at));
    if edit_waiting.scheduled_for is not null and new_expiry is not null then
        delete from fairlead.expiries e where e.expires_at = old.expires_at and e.job_id = edit_waiting.job;
        insert into fairlead.expiries (expires_at, job_id, tenant_id)
        values (new_expiry, edit_waiting.job, old.tenant_id) on conflict do nothing;
    else
        new_expiry := old.expires_at;
    end if;
    if edit_waiting.tags is not null then
        delete from fairlead.job_tags t
        where t.tenant_id = old.tenant_id and t.job_id = edit_waiting.job and t.tag = any(old.tags);
        insert into fairlead.job_tags (tenant_id, tag, job_id)
        select old.tenant_id, t.tag, edit_waiting.job from unnest(edit_waiting.tags) as t(tag);
    end if;
    update fairlead.job_records j
    set payload = coalesce(edit_waiting.payload, j.payload), priority = coalesce(edit_waiting.priority, j.priority),
        scheduled_for = new_at, limit_key = new_key, host_id = new_host, expires_at = new_expiry,
        tags = case when edit_waiting.tags is null then j.tags when cardinality(edit_waiting.tags) > 0 then edit_waiting.tags end,
        resource_id = case when edit_waiting.with_target then edit_waiting.resource_id else j.resource_id end
    where j.id = edit_waiting.job;
    if waits then
        insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, alone, held, waits, limit_key)
        values (edit_waiting.job, old.tenant_id, old.definition_id, new_host,
            coalesce(edit_waiting.priority, old.priority), new_at, place.alone, is_held,
            -- an event, a signal or the end of a child may still wake a durable function earlier
            place.sleeps, new_key);
    else
        insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
        values (edit_waiting.job, old.tenant_id, old.definition_id, new_host,
            coalesce(edit_waiting.priority, old.priority), greatest(new_at, old.queued_at), new_key);
    end if;
    if old.limit_key is not null and (waits or new_key is distinct from old.limit_key) then
        released := fairlead.release_keys(array[old.definition_id], array[old.tenant_id], array[old.limit_key]);
    end if;
    outcome := 'edited';
end
$$;

CREATE FUNCTION fairlead.emit(tenant text, name text, data jsonb DEFAULT '{}'::jsonb, correlation_id text DEFAULT NULL::text, occurred_at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;

CREATE FUNCTION fairlead.emit_joined(event text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

CREATE FUNCTION fairlead.emit_one(tenant text, name text, data jsonb, correlation_id text DEFAULT NULL::text, occurred_at timestamp with time zone DEFAULT NULL::timestamp with time zone, actor text DEFAULT NULL::text, id uuid DEFAULT NULL::uuid, caused_by uuid DEFAULT NULL::uuid, OUT event_id uuid, OUT outcome text) RETURNS record
    LANGUAGE plpgsql
    AS $_$
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
$_$;

CREATE FUNCTION fairlead.enqueue(tenant text, definition text, payload jsonb DEFAULT '{}'::jsonb, priority integer DEFAULT NULL::integer, scheduled_for timestamp with time zone DEFAULT NULL::timestamp with time zone, max_attempts integer DEFAULT NULL::integer, dedupe_key text DEFAULT NULL::text, correlation_id text DEFAULT NULL::text, tags text[] DEFAULT NULL::text[], timeout interval DEFAULT NULL::interval, expires_in interval DEFAULT NULL::interval, unique_for interval DEFAULT NULL::interval, debounce jsonb DEFAULT NULL::jsonb, OUT job_id uuid, OUT deduplicated boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;

CREATE FUNCTION fairlead.enqueue_joined(jobs text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    now_on constant timestamptz := clock_timestamp();
    asked jsonb := enqueue_joined.jobs::jsonb;
    refused jsonb;
    answers jsonb;
    any_ready boolean;
    any_later boolean;
    over jsonb;
begin
    -- on Citus: perform fairlead.hold_placement();
    select jsonb_agg(jsonb_build_object('at', c.at - 1, 'outcome', c.refusal, 'definition', c.definition) order by c.at)
    into refused
    from (
        select j.at, r.definition, coalesce(
            r.refusal,
            case when r.sealed_paths is not null and fairlead.has_plain_secret(r.sealed_paths, j.job -> 'payload')
                then 'encryption_key_missing' end,
            fairlead.refusal_of(
                j.job -> 'payload', (j.job ->> 'priority')::integer, due.scheduled_for,
                (j.job ->> 'max_attempts')::integer, j.job ->> 'dedupe_key', j.job ->> 'correlation_id'),
            case when j.job ?| '{tags,timeout,expires_in,unique_for,debounce}' and not fairlead.options_fit(
                    case when j.job ? 'tags' then array(select jsonb_array_elements_text(j.job -> 'tags')) end,
                    (j.job ->> 'timeout')::float8, (j.job ->> 'expires_in')::float8, (j.job ->> 'unique_for')::float8,
                    j.job -> 'debounce', j.job ->> 'dedupe_key', due.scheduled_for) then 'invalid_input' end,
            case when exists (select from fairlead.jobs t where t.id = (j.job ->> 'id')::uuid) then 'job_id_taken' end,
            (select t.refusal from fairlead.target_of(
                r.tenant_id, r.definition_id, j.job -> 'payload', (j.job ->> 'host_id')::uuid,
                (j.job ->> 'resource_id')::uuid) t)
        ) as refusal
        from jsonb_array_elements(asked) with ordinality as j(job, at)
        cross join lateral fairlead.resolve(
            j.job ->> 'tenant', j.job ->> 'definition', coalesce((j.job ->> 'expected_version')::integer, 0)) r
        cross join lateral (select coalesce(
            (j.job ->> 'scheduled_for')::timestamptz,
            now_on + make_interval(secs => (j.job ->> 'delay')::float8)) as scheduled_for) due
    ) c
    where c.refusal is not null;
    if refused is not null then
        return jsonb_build_object('refused', refused)::text;
    end if;

    -- check the quotas for all jobs together; jobs that will be deduplicated do not count
    with asked_for as (
        select j.at, r.tenant_id, (j.job ->> 'parent_id')::uuid as parent_id, j.job -> 'quotas' as quotas
        from jsonb_array_elements(asked) with ordinality as j(job, at)
        cross join lateral fairlead.resolve(j.job ->> 'tenant', j.job ->> 'definition', null) r
        where (j.job ->> 'dedupe_key' is null or not exists (
                select from fairlead.active_keys k
                where k.tenant_id = r.tenant_id and k.key_hash = sha256(convert_to(j.job ->> 'dedupe_key', 'UTF8'))))
            and (j.job ->> 'debounce' is null or not exists (
                select from fairlead.debounces d
                where d.tenant_id = r.tenant_id and d.key_hash = sha256(convert_to(
                    concat_ws(' ', r.definition_id, j.job -> 'debounce' ->> 'key'), 'UTF8'))))
    ), parts as materialized (
        select null::uuid as root, a.tenant_id, count(*) as jobs, min(a.at) as at,
            coalesce((array_agg(a.quotas))[1], '{}') as quotas
        from asked_for a group by a.tenant_id
        union all
        select f.root, null, sum(p.jobs), min(p.at), coalesce((array_agg(p.quotas))[1], '{}')
        from (
            select a.parent_id, count(*) as jobs, min(a.at) as at, (array_agg(a.quotas))[1] as quotas
            from asked_for a where a.parent_id is not null group by a.parent_id) p
        cross join lateral (select fairlead.root_run_of(p.parent_id) as root offset 0) f
        where f.root is not null group by f.root
    )
    select jsonb_agg(jsonb_build_object('at', o.at - 1, 'outcome', 'quota_exceeded', 'quota', o.quota) order by o.at)
    into over
    from (
        select p.at, case when p.root is null then fairlead.room_of(p.tenant_id, p.jobs::bigint, p.quotas)
            else fairlead.room_in_run(p.root, p.jobs::bigint, p.quotas) end as quota
        from parts p order by p.at) o
    where o.quota is not null;
    if over is not null then
        return jsonb_build_object('refused', over)::text;
    end if;

    -- in the order in which bulk loads lock dedupe keys and the turns of limit keys, so that two callers cannot deadlock
    select jsonb_agg(jsonb_build_object('at', o.at - 1, 'outcome', o.outcome, 'job_id', o.job_id) order by o.at),
        bool_or(not o.waits), bool_or(o.waits)
    into answers, any_ready, any_later
    from (
        select j.at, e.outcome, e.job_id, e.waits
        from (
            select a.job, a.at
            from jsonb_array_elements(asked) with ordinality as a(job, at)
            cross join lateral fairlead.resolve(a.job ->> 'tenant', a.job ->> 'definition', null) r
            cross join lateral (
                select case when r.by_key ->> 'strategy' <> 'queue' and not a.job ? 'debounce'
                    then fairlead.limit_key_of(r.by_key, a.job -> 'payload') end as limit_key offset 0) l
            order by a.job ? 'debounce', l.limit_key is not null, r.tenant_id,
                case when l.limit_key is null then sha256(convert_to(a.job ->> 'dedupe_key', 'UTF8')) end,
                case when l.limit_key is not null then r.definition_id end, l.limit_key,
                sha256(convert_to(concat_ws(' ', r.definition_id, a.job -> 'debounce' ->> 'key'), 'UTF8')), a.at
            offset 0
        ) j
        cross join lateral fairlead.enqueue_one(
            tenant => j.job ->> 'tenant',
            definition_key => j.job ->> 'definition',
            payload => j.job -> 'payload',
            priority => (j.job ->> 'priority')::integer,
            scheduled_for => coalesce(
                (j.job ->> 'scheduled_for')::timestamptz,
                now_on + make_interval(secs => (j.job ->> 'delay')::float8)),
            max_attempts => (j.job ->> 'max_attempts')::integer,
            dedupe_key => j.job ->> 'dedupe_key',
            correlation_id => j.job ->> 'correlation_id',
            source => coalesce(j.job ->> 'source', 'manual')::fairlead.job_source,
            source_ref => j.job ->> 'source_ref',
            parent_id => (j.job ->> 'parent_id')::uuid,
            actor => j.job ->> 'actor',
            id => (j.job ->> 'id')::uuid, trace => left(j.job ->> 'trace', 600),
            host_id => (j.job ->> 'host_id')::uuid, resource_id => (j.job ->> 'resource_id')::uuid,
            quotas => null,
            tags => case when j.job ? 'tags' then array(select jsonb_array_elements_text(j.job -> 'tags')) end,
            timeout => ceil((j.job ->> 'timeout')::float8)::integer, expires_in => (j.job ->> 'expires_in')::float8,
            unique_for => (j.job ->> 'unique_for')::float8, debounce => j.job -> 'debounce') e
    ) o;
    -- since the checks above, a tenant has begun to move, or a definition or a host is gone
    select jsonb_agg(jsonb_build_object('at', a.answer -> 'at', 'outcome', a.answer -> 'outcome', 'definition', null))
    into refused
    from jsonb_array_elements(answers) as a(answer)
    where a.answer ->> 'outcome' not in ('enqueued', 'deduplicated');
    if jsonb_array_length(refused) = jsonb_array_length(answers) then
        return jsonb_build_object('refused', refused)::text;
    elsif refused is not null then
        raise exception 'not enqueued: the tenant, the definition or the host of a job was changed at the same time'
            using errcode = 'transaction_rollback', detail = refused #>> '{0,outcome}',
            hint = 'Roll back and run the transaction again.';
    end if;
    if any_ready then
        perform fairlead.notify_in_transaction('ready');
    end if;
    if any_later then
        perform fairlead.notify_in_transaction('later');
    end if;
    return jsonb_build_object('enqueued', answers)::text;
end
$$;

CREATE FUNCTION fairlead.enqueue_one(tenant text, definition_key text, payload jsonb, priority integer DEFAULT NULL::integer, scheduled_for timestamp with time zone DEFAULT NULL::timestamp with time zone, max_attempts integer DEFAULT NULL::integer, dedupe_key text DEFAULT NULL::text, correlation_id text DEFAULT NULL::text, source fairlead.job_source DEFAULT 'manual'::fairlead.job_source, source_ref text DEFAULT NULL::text, parent_id uuid DEFAULT NULL::uuid, actor text DEFAULT NULL::text, id uuid DEFAULT NULL::uuid, expected_version integer DEFAULT NULL::integer, trace text DEFAULT NULL::text, host_id uuid DEFAULT NULL::uuid, resource_id uuid DEFAULT NULL::uuid, quotas jsonb DEFAULT '{}'::jsonb, tags text[] DEFAULT NULL::text[], timeout integer DEFAULT NULL::integer, expires_in double precision DEFAULT NULL::double precision, unique_for double precision DEFAULT NULL::double precision, debounce jsonb DEFAULT NULL::jsonb, OUT job_id uuid, OUT outcome text, OUT definition jsonb, OUT tenant_id uuid, OUT definition_id uuid, OUT waits boolean, OUT quota jsonb) RETURNS record
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    about record;
    moment timestamptz := clock_timestamp();
    hash bytea;
    target record;
    root uuid;
    job_limit_key uuid;
    dropped_for uuid;
    due timestamptz := enqueue_one.scheduled_for;
    job_expires_at timestamptz;
    holder record;
    debounced record;
begin
    perform fairlead.hold_tenant(enqueue_one.tenant);
    select * into about
    from fairlead.resolve(enqueue_one.tenant, enqueue_one.definition_key, enqueue_one.expected_version);
    if about.refusal is not null then
        outcome := about.refusal;
        definition := about.definition;
        return;
    end if;
    if about.sealed_paths is not null and fairlead.has_plain_secret(about.sealed_paths, enqueue_one.payload) then
        outcome := 'encryption_key_missing';
        return;
    end if;

    select * into target from fairlead.target_of(
        about.tenant_id, about.definition_id, enqueue_one.payload, enqueue_one.host_id, enqueue_one.resource_id);
    if target.refusal is not null then
        outcome := target.refusal;
        return;
    end if;
    if target.target_host is not null then
        -- this lock and the removal of a host exclude each other
        perform from fairlead.hosts h where h.id = target.target_host for key share;
        if not found then
            outcome := 'host_unknown';
            return;
        end if;
    end if;

    if about.by_key is not null then
        job_limit_key := fairlead.limit_key_of(about.by_key, enqueue_one.payload);
    end if;
    job_id := coalesce(enqueue_one.id, fairlead.uuid7());
    tenant_id := about.tenant_id;
    definition_id := about.definition_id;
    if enqueue_one.dedupe_key is not null then
        hash := sha256(convert_to(enqueue_one.dedupe_key, 'UTF8'));
    end if;
    if enqueue_one.parent_id is not null then
        root := fairlead.root_run_of(enqueue_one.parent_id);
    end if;
    if enqueue_one.quotas is not null then
        quota := coalesce(
            fairlead.room_of(about.tenant_id, 1, enqueue_one.quotas),
            case when root is not null then fairlead.room_in_run(root, 1, enqueue_one.quotas) end);
        if quota is not null then
            -- a job that will be deduplicated does not count
            perform from fairlead.active_keys k where k.tenant_id = about.tenant_id and k.key_hash = hash
            union all
            select from fairlead.debounces d
            where d.tenant_id = about.tenant_id and enqueue_one.debounce is not null and d.key_hash = sha256(convert_to(
                concat_ws(' ', about.definition_id, enqueue_one.debounce ->> 'key'), 'UTF8'));
            if not found then
                job_id := null;
                outcome := 'quota_exceeded';
                return;
            end if;
        end if;
    end if;
    if job_limit_key is not null and coalesce(about.by_key ->> 'strategy', 'queue') <> 'queue' then
        -- before the dedupe key, which other jobs of the same key may use
        perform pg_advisory_xact_lock(fairlead.key_turn_of(about.definition_id, about.tenant_id, job_limit_key));
    end if;
    if hash is not null then
        loop
            -- waits for an uncommitted holder of the key, so the answer below is final
            insert into fairlead.active_keys (tenant_id, key_hash, job_id, unique_until)
                values (about.tenant_id, hash, enqueue_one.job_id, moment + make_interval(secs => enqueue_one.unique_for))
                on conflict do nothing;
            exit when found;
            select k.job_id, k.unique_until into holder from fairlead.active_keys k
                where k.tenant_id = about.tenant_id and k.key_hash = hash;
            if found and holder.unique_until <= clock_timestamp() then
                -- taken over if its job has ended
                continue when fairlead.free_key(about.tenant_id, hash);
            end if;
            if holder.job_id is not null then
                job_id := holder.job_id;
                outcome := 'deduplicated';
                -- the holder may have committed without its synchronous standby, if its wait for that was canceled: this
                -- answer then waits for it
                if current_setting('synchronous_standby_names') <> '' then
                    perform pg_catalog.pg_logical_emit_message(true, 'fairlead', '');
                end if;
                return;
            end if;
            -- the holder ended in between: the key is free again
            job_id := coalesce(enqueue_one.id, fairlead.uuid7());
        end loop;
    end if;

    if enqueue_one.debounce is not null then
        select * into debounced from fairlead.debounce_job(
            about.tenant_id, about.definition_id, enqueue_one.job_id, enqueue_one.debounce, enqueue_one.payload,
            target.target_host, target.target_resource, job_limit_key, enqueue_one.expires_in, about.by_key);
        due := debounced.due_at;
        if debounced.moved is not null then
            job_id := debounced.moved;
            outcome := 'deduplicated';
            waits := due > moment;
            return;
        end if;
    end if;

    if job_limit_key is not null then
        dropped_for := fairlead.apply_key_strategy(
            about.definition_id, about.tenant_id, job_limit_key, about.by_key, enqueue_one.job_id,
            coalesce(enqueue_one.actor, session_user));
        if dropped_for is not null then
            if hash is not null then
                delete from fairlead.active_keys k
                where k.tenant_id = about.tenant_id and k.key_hash = hash and k.job_id = enqueue_one.job_id;
            end if;
            if enqueue_one.debounce is not null then
                delete from fairlead.debounces d
                where d.tenant_id = about.tenant_id and d.job_id = enqueue_one.job_id and d.key_hash = sha256(convert_to(
                    concat_ws(' ', about.definition_id, enqueue_one.debounce ->> 'key'), 'UTF8'));
            end if;
            job_id := dropped_for;
            outcome := 'deduplicated';
            return;
        end if;
    end if;

    if enqueue_one.expires_in is not null then
        job_expires_at := greatest(due, moment) + make_interval(secs => enqueue_one.expires_in);
        insert into fairlead.expiries (expires_at, job_id, tenant_id)
        values (job_expires_at, enqueue_one.job_id, about.tenant_id);
    end if;
    if cardinality(enqueue_one.tags) > 0 then
        insert into fairlead.job_tags (tenant_id, tag, job_id)
        select about.tenant_id, t.tag, enqueue_one.job_id from unnest(enqueue_one.tags) as t(tag);
    end if;

    insert into fairlead.job_records (
        id, tenant_id, definition_id, parent_id, priority, max_attempts, scheduled_for, queued_at,
        source, source_ref, dedupe_key, correlation_id, created_by, payload, trace, host_id, resource_id,
        root_run_id, limit_key, tags, timeout_seconds, expires_at)
    values (
        enqueue_one.job_id, about.tenant_id, about.definition_id, enqueue_one.parent_id,
        coalesce(enqueue_one.priority, about.default_priority),
        coalesce(enqueue_one.max_attempts, about.max_attempts),
        coalesce(due, moment), moment,
        enqueue_one.source, enqueue_one.source_ref, enqueue_one.dedupe_key, enqueue_one.correlation_id,
        coalesce(enqueue_one.actor, session_user), enqueue_one.payload, enqueue_one.trace,
        target.target_host, target.target_resource, root, job_limit_key,
        case when cardinality(enqueue_one.tags) > 0 then enqueue_one.tags end, enqueue_one.timeout, job_expires_at);
    if root is not null then
        insert into fairlead.run_jobs (root_run_id, tenant_id, jobs) values (root, about.tenant_id, 1);
    end if;

    if due > moment then
        insert into fairlead.later (job_id, tenant_id, definition_id, priority, due_at, host_id, limit_key)
        values (enqueue_one.job_id, about.tenant_id, about.definition_id,
            coalesce(enqueue_one.priority, about.default_priority), due, target.target_host, job_limit_key);
    else
        -- a time in the past does not move it ahead in the queue, nor count as waiting time
        insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for, host_id, limit_key)
        values (enqueue_one.job_id, about.tenant_id, about.definition_id,
            coalesce(enqueue_one.priority, about.default_priority), moment, target.target_host, job_limit_key);
    end if;

    insert into fairlead.counts (tenant_id, definition_id, minute, queued)
    values (about.tenant_id, about.definition_id, date_trunc('minute', moment), 1);

    insert into fairlead.audit_log (at, tenant_id, actor, action, resource_type, resource_id, details)
    values (moment, about.tenant_id, coalesce(enqueue_one.actor, session_user), 'job_created', 'job',
        enqueue_one.job_id::text,
        case when target.target_resource is null then '{}'
            else fairlead.resource_named(about.definition_id, enqueue_one.payload)
                || jsonb_build_object('resource_id', target.target_resource) end
        || case when target.target_host is null then '{}' else jsonb_build_object('host_id', target.target_host) end
        || jsonb_build_object('definition_key', enqueue_one.definition_key)
        -- the real role of a caller through a SECURITY DEFINER function; fairlead_tenant is the server's own role
        || case when session_user <> current_user and current_user <> 'fairlead_tenant'
            then jsonb_build_object('role', session_user) else '{}' end);

    outcome := 'enqueued';
    waits := coalesce(due > moment, false);
end
$$;

CREATE FUNCTION fairlead.error_of_child(status fairlead.job_status, error jsonb, last_error text) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    select case when error_of_child.status <> 'succeeded' then jsonb_build_object(
        'type', coalesce(error_of_child.error ->> 'type', initcap(error_of_child.status::text)),
        'message', coalesce(error_of_child.error ->> 'message', error_of_child.last_error, 'the child was ' || error_of_child.status),
        'status', error_of_child.status) end
$$;

CREATE FUNCTION fairlead.expire_jobs(most integer, OUT done bigint, OUT canceled uuid[], OUT released bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    due uuid[];
begin
    due := array(
        select e.job_id from fairlead.expiries e where e.expires_at <= (select clock_timestamp())
        order by e.expires_at, e.job_id limit expire_jobs.most for update skip locked);
    done := 0;
    canceled := '{}';
    released := 0;
    if due = '{}' then
        return;
    end if;
    canceled := fairlead.cancel_waiting(
        array(
            select j.id from fairlead.job_records j
            where j.id = any(due) and j.status = 'queued' and j.attempt_count = 0 and j.expires_at <= clock_timestamp()),
        'expired', 'It had not started when its time was over.', 'system', with_steps => true);
    -- locked in the order of release_keys
    select coalesce(fairlead.release_keys(
        array_agg(j.definition_id), array_agg(j.tenant_id), array_agg(j.limit_key)), 0) into released
    from fairlead.job_records j where j.id = any(canceled) and j.limit_key is not null having count(*) > 0;
    released := coalesce(released, 0);
    -- the rows of jobs that still wait stay, since another transaction has them now
    delete from fairlead.expiries e
    where e.expires_at <= clock_timestamp() and e.job_id = any(due) and not exists (
        select from fairlead.job_records j
        where j.id = e.job_id and j.status = 'queued' and j.attempt_count = 0 and j.expires_at = e.expires_at
            and not exists (select from fairlead.leases l where l.job_id = j.id));
    get diagnostics done = row_count;
end
$$;

CREATE FUNCTION fairlead.finish_joined(request text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
    given_ends jsonb;
    given_actor constant text := finish_joined.request::jsonb ->> 'actor';
    done_now text;
    done_before text;
    event_stored boolean;
    jobs_released bigint;
    step_ended boolean;
begin
    -- on Citus: perform fairlead.hold_placement();
    select jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
        'job_id', e.value -> 'job_id', 'attempt_no', e.value -> 'attempt_no', 'token', e.value -> 'token',
        'cost', e.value -> 'cost', 'log', e.value -> 'log')) || jsonb_build_object('output', e.value -> 'output'))
    into given_ends
    from jsonb_array_elements(finish_joined.request::jsonb -> 'ends') e;

    for done_now, event_stored, jobs_released in
with moment as materialized (
    -- one time for all, so that one row of counts is exact
    select clock_timestamp() as now
), outcome as (
    -- one document instead of thirteen arrays takes a third of the worker's time; missing fields mean a plain
    -- success
    select o.job_id, o.attempt_no, o.token, coalesce(o.status, 'succeeded') as status,
        coalesce(o.attempt_status, 'succeeded') as attempt_status, coalesce(o.delay, 0) as delay,
        coalesce(o.charge, 0) as charge, coalesce(o.loss, 0) as loss, coalesce(o.suspicion, 0) as suspicion,
        coalesce(o.alone, false) as alone, coalesce(o.accused, false) as accused, o.output, o.error, o.message,
        coalesce(o.cost, 0) as cost, o.log, o.ran, coalesce(o.waits, false) as waits
    from jsonb_to_recordset(given_ends) as o(
        job_id uuid, attempt_no int, token uuid, status fairlead.job_status, attempt_status text, delay float8,
        charge int, loss int, suspicion int, alone boolean, accused boolean, output jsonb, error jsonb, message text,
        cost bigint, log text, ran jsonb, waits boolean)
), ended as (
    delete from fairlead.leases l using outcome o
    where l.job_id = o.job_id and l.attempt_no = o.attempt_no and l.token = o.token
    returning o.*, l.tenant_id, l.definition_id, l.host_id, l.worker_id, l.started_at, l.queue_ms, l.progress, l.limit_key
), changed as (
    update fairlead.job_records j
    set status = case when j.cancel_requested_at is not null and e.status <> 'succeeded' then 'canceled'
            else e.status end,
        attempt_count = e.attempt_no, started_at = e.started_at, claimed_by_worker = e.worker_id, progress = e.progress,
        troubled = e.status > 'succeeded' or (j.cancel_requested_at is not null and e.status <> 'succeeded'),
        finished_at = case when e.status > 'running' or j.cancel_requested_at is not null then (select now from moment) end,
        scheduled_for = case when e.status = 'queued' and j.cancel_requested_at is null
            then (select now from moment) + make_interval(secs => e.delay) else j.scheduled_for end,
        failure_count = j.failure_count + e.charge,
        lost_count = j.lost_count + e.loss, suspected = j.suspected + e.suspicion, accused = j.accused or e.accused,
        output = e.output, error = e.error, last_error = coalesce(e.message, j.last_error),
        cost_cents = j.cost_cents + e.cost
    from ended e where j.id = e.job_id
    returning j.id, j.tenant_id, j.definition_id, j.host_id, j.priority, j.status, j.scheduled_for, j.dedupe_key,
        j.parent_id, e.waits, e.attempt_no, e.token, e.worker_id, e.attempt_status, e.message, e.cost, e.started_at, e.queue_ms, e.delay,
        e.alone, e.log, e.ran, e.limit_key
), attempted as (
    select c.*,
        case when c.status = 'canceled' and c.attempt_status <> 'lost' then 'canceled' else c.attempt_status end as ended_as,
        -- the duration that the worker measured, if plausible: it may report long after the end
        greatest(0, least(
            (c.ran ->> 'duration_ms')::bigint,
            (date_part('epoch', (select now from moment) - c.started_at) * 1000)::bigint)) as duration_ms
    from changed c
), recorded as (
    insert into fairlead.job_attempts (
        job_id, attempt_no, tenant_id, token, worker_id, pid, status, started_at, finished_at, queue_ms, duration_ms,
        exit_code, signal, cost_cents, error_text, stdout_tail, stderr_tail)
    select a.id, a.attempt_no, a.tenant_id, a.token, a.worker_id, (a.ran ->> 'pid')::int, a.ended_as, a.started_at,
        (select now from moment), a.queue_ms, a.duration_ms, (a.ran ->> 'exit_code')::int, (a.ran ->> 'signal')::int,
        a.cost, a.message, a.log, a.ran ->> 'stderr'
    from attempted a
), again as (
    insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
    select id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key from changed
    where status = 'queued' and delay <= 0 and not alone
), waiting as (
    insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, alone, waits, limit_key)
    select id, tenant_id, definition_id, host_id, priority, scheduled_for, alone, waits, limit_key from changed
    where status = 'queued' and (delay > 0 or alone)
), freed as (
    -- looked up by key, whatever the table's statistics
    delete from fairlead.active_keys where ctid = any(array(
        select held.spot from changed c cross join lateral (
            select k.ctid as spot from fairlead.active_keys k
            where k.tenant_id = c.tenant_id and k.key_hash = sha256(convert_to(c.dedupe_key, 'UTF8'))
                and k.job_id = c.id and coalesce(k.unique_until <= clock_timestamp(), true)
            limit 1) held
        where c.dedupe_key is not null and c.status > 'running'))
), counted as (
    -- usage is the sum of the attempts' values
    insert into fairlead.counts (
        tenant_id, definition_id, minute, running, queued, succeeded, failed, dead_letter, canceled,
        runs, retried, run_ms, queue_ms, cost_cents, lost)
    select tenant_id, definition_id, (select date_trunc('minute', now) from moment), -count(*),
        count(*) filter (where status = 'queued'), count(*) filter (where status = 'succeeded'),
        count(*) filter (where status = 'failed'), count(*) filter (where status = 'dead_letter'),
        count(*) filter (where status = 'canceled'),
        -- integers below 2^53, so exact; sums of bigint are numeric, which costs more than the row if tenants are many
        count(*), count(*) filter (where status = 'queued' and ended_as <> 'released'), sum(duration_ms::float8),
        coalesce(sum(queue_ms::float8), 0), sum(cost::float8), count(*) filter (where ended_as = 'lost')
    from attempted group by tenant_id, definition_id
), named as materialized (
    -- few, and looked up once: a lookup for each job would cost more than the rest of its entry
    select d.id, d.key, d.audit_action from fairlead.job_definitions d
    where d.id = any(array(select distinct definition_id from changed))
), audited as (
    insert into fairlead.audit_log (tenant_id, actor, action, resource_type, resource_id, details)
    select c.tenant_id, given_actor, c.action, 'job', c.id::text,
        jsonb_build_object('definition_key', c.key, 'attempt_no', c.attempt_no)
    from (
        select c.tenant_id, c.id, c.attempt_no, d.key, case c.status
            when 'succeeded' then d.audit_action when 'dead_letter' then 'JOB_EXHAUSTED_RETRIES'
            when 'failed' then 'JOB_FAILED' when 'canceled' then 'JOB_CANCELED' end as action
        from changed c join named d on d.id = c.definition_id) c
    where c.action is not null
)
select json_object_agg(id, status)::text,
    -- usually no trigger listens, no parent waits and no parent is canceled, and then nothing more is done
    case when count(parent_id) > 0 or bool_or(status = 'canceled') or exists (
        select from fairlead.job_triggers g
        where g.event_name like 'job.%' and g.is_enabled and g.deleted_at is null)
    then fairlead.tell_ends(array(select row(id, tenant_id, status)::fairlead.job_end from changed)) end,
    case when count(limit_key) > 0
        then fairlead.release_keys(array_agg(definition_id), array_agg(tenant_id), array_agg(limit_key), false) end
from changed
    loop
    end loop;
    with step as (
        insert into fairlead.ended_steps (job_id, tenant_id)
        select j.id, j.tenant_id from jsonb_object_keys(coalesce(done_now, '{}')::jsonb) as d(id)
        cross join lateral (
            select j.id, j.tenant_id, j.workflow_run_id from fairlead.job_records j where j.id = d.id::uuid limit 1) j
        where j.workflow_run_id is not null
        returning 1
    )
    select exists (select from step) into step_ended;
    if event_stored then
        perform fairlead.notify_in_transaction('event');
    end if;
    if jobs_released > 0 then
        perform fairlead.notify_in_transaction('ready');
    end if;
    if step_ended then
        perform fairlead.notify_in_transaction('step');
    end if;

    if (select count(*) from jsonb_object_keys(coalesce(done_now, '{}')::jsonb)) < jsonb_array_length(given_ends) then
        for done_before in
select json_object_agg(j.id, j.status)::text
from jsonb_to_recordset(given_ends) as o(job_id uuid, attempt_no int, token uuid, attempt_status text, message text)
cross join lateral (
    select from fairlead.attempts a
    where a.job_id = o.job_id and a.attempt_no = o.attempt_no and a.token = o.token
        and a.status <> 'lost'
        and (a.status = coalesce(o.attempt_status, 'succeeded')
            or a.status = 'canceled' and o.attempt_status is not null and a.error_text is not distinct from o.message)
    limit 1) ended
cross join lateral (select id, status from fairlead.jobs where id = o.job_id limit 1) j
        loop
        end loop;
    end if;
    return jsonb_build_object(
        'done', coalesce(done_before, '{}')::jsonb || coalesce(done_now, '{}')::jsonb,
        'database', fairlead.database_identity())::text;
end
$$;

CREATE FUNCTION fairlead.fit_slots(INOUT ready_rows tid[], free integer, turns integer[], OUT short_of integer, OUT short_tenant uuid, OUT short_credit integer) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $$
#variable_conflict use_column
declare
    chosen tid[] := fit_slots.ready_rows;
begin
    select array_agg(s.spot order by s.at) filter (where s.total <= fit_slots.free),
        (array_agg(s.slots order by s.at) filter (where s.total > fit_slots.free))[1],
        (array_agg(s.tenant_id order by s.at) filter (where s.total > fit_slots.free))[1],
        (array_agg(1 + fit_slots.turns[s.n][4] order by s.at) filter (where s.total > fit_slots.free))[1]
    into ready_rows, short_of, short_tenant, short_credit
    from (
        select o.spot, o.n, o.at, o.tenant_id, o.slots, sum(o.slots) over (order by o.at) as total
        from (
            select c.spot, c.n, r.tenant_id, d.slots, row_number() over (
                order by fit_slots.turns[c.n][1], fit_slots.turns[c.n][2], fit_slots.turns[c.n][3], c.n) as at
            from unnest(chosen) with ordinality as c(spot, n)
            join fairlead.ready r on r.ctid = c.spot
            join fairlead.job_definitions d on d.id = r.definition_id) o) s;
end
$$;

CREATE FUNCTION fairlead.follows_an_end(job uuid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    with recursive line as (
        -- a job, the job that created it, and so on; the bound ends a cycle
        select follows_an_end.job as id, 1 as length
        union all
        select above.id, l.length + 1
        from line l cross join lateral (
            select coalesce(j.parent_id, (
                select r.started_by_job from fairlead.workflow_runs r where r.id = j.workflow_run_id)) as id
            from fairlead.jobs j where j.id = l.id limit 1) above
        where above.id is not null and l.length < 100
    )
    select exists (
        select from line l
        cross join lateral (
            select j.created_by, r.created_by as run_by
            from fairlead.jobs j left join fairlead.workflow_runs r on r.id = j.workflow_run_id
            where j.id = l.id limit 1) made
        cross join lateral unnest(array[made.created_by, made.run_by]) as actor(name)
        where fairlead.listens_to_ends(actor.name))
$$;

CREATE FUNCTION fairlead.free_key(tenant uuid, hash bytea) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    holder uuid;
begin
    select k.job_id into holder from fairlead.active_keys k
    where k.tenant_id = free_key.tenant and k.key_hash = free_key.hash and k.unique_until <= clock_timestamp();
    if not found then
        return not exists (
            select from fairlead.active_keys k where k.tenant_id = free_key.tenant and k.key_hash = free_key.hash);
    end if;
    perform from fairlead.job_records j where j.id = holder for share;
    if exists (select from fairlead.job_records j where j.id = holder and j.status <= 'running') then
        return false;
    end if;
    delete from fairlead.active_keys k
    where k.tenant_id = free_key.tenant and k.key_hash = free_key.hash and k.job_id = holder
        and k.unique_until <= clock_timestamp();
    return true;
end
$$;

CREATE FUNCTION fairlead.full_tenants(moment timestamp with time zone, OUT tenants jsonb, OUT opens_at timestamp with time zone) RETURNS record
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'on'
    SET enable_hashjoin TO 'on'
    AS $$
#variable_conflict use_column
begin
    if not exists (select from fairlead.tenants t where t.max_running is not null)
        and not exists (select from fairlead.tenants t where t.rate is not null)
    then
        return;
    end if;
    select jsonb_object_agg(f.id, true), min(f.opens_at) into tenants, opens_at
    from (
        select t.id, null::timestamptz as opens_at from fairlead.tenants t
        left join (select l.tenant_id, count(*) as number from fairlead.leases l group by l.tenant_id) running
            on running.tenant_id = t.id
        where t.max_running is not null and coalesce(running.number, 0) >= t.max_running
        union all
        select t.id, opens.at from fairlead.tenants t
        cross join lateral (
            select fairlead.rate_opens_at(null, t.id, t.rate, full_tenants.moment) as at offset 0) opens
        where t.rate is not null and opens.at is not null
    ) f;
end
$$;

CREATE FUNCTION fairlead.has_plain_secret(paths text[], payload jsonb) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
declare
    path text;
begin
    foreach path in array paths loop
        if fairlead.has_plain_value(payload, (string_to_array(path, '/'))[2:]) then
            return true;
        end if;
    end loop;
    return false;
end
$$;

CREATE FUNCTION fairlead.has_plain_value(value jsonb, path text[]) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $_$
declare
    kind constant text := jsonb_typeof(value);
    name constant text := replace(replace(path[1], '~1', '/'), '~0', '~');
    rest constant text[] := path[2:];
    part jsonb;
begin
    if kind = 'object' and (jsonb_typeof(value -> '$secret') = 'string' and value - '$secret' = '{}'
            or starts_with(value ->> '$sealed', 'sealed:') and value - '{$sealed,$bound}'::text[] = '{}') then
        return false;
    elsif name is null and kind not in ('object', 'array') then
        return value not in ('null', '""');
    elsif name is not null and name not in ('*', '**') then
        return case
            when kind = 'object' and value ? name then fairlead.has_plain_value(value -> name, rest)
            when kind = 'array' and name ~ '^[0-9]{1,9}$' and value -> name::integer is not null
                then fairlead.has_plain_value(value -> name::integer, rest)
            else false end;
    elsif name = '**' then
        -- no step
        if fairlead.has_plain_value(value, rest) then
            return true;
        end if;
    end if;
    -- every part: of a secret, or of what `*` or `**` stands for
    for part in
        select o.value from jsonb_each(case kind when 'object' then value else '{}' end) o
        union all
        select a.value from jsonb_array_elements(case kind when 'array' then value else '[]' end) a
    loop
        if fairlead.has_plain_value(part, case when name = '*' then rest else path end) then
            return true;
        end if;
    end loop;
    return false;
end
$_$;

CREATE FUNCTION fairlead.has_second_factor(whose uuid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select exists (select from fairlead.second_factors f where f.user_id = whose and f.confirmed_at is not null)
$$;

CREATE FUNCTION fairlead.hold_new_definition(definition uuid) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if not exists (select from fairlead.job_definitions d where d.id = definition) then
        perform pg_advisory_xact_lock(hashtextextended('fairlead.job_definitions ' || definition, 0));
    end if;
end
$$;

CREATE FUNCTION fairlead.hold_placement(is_checked_elsewhere boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    shard constant bigint := substring('fairlead.tenants' from '[0-9]+$');
begin
    if current_setting('transaction_isolation') <> 'read committed' and not is_checked_elsewhere then
        raise exception 'On Citus, jobs and events can join only transactions with the isolation level READ COMMITTED'
            using errcode = 'feature_not_supported',
            hint = 'An older snapshot would not show that Citus has moved the schema.';
    end if;
    perform lock_shard_metadata(5, array[shard]);
    if not is_checked_elsewhere and not exists (
            select from pg_dist_placement p join pg_dist_local_group l on l.groupid = p.groupid where p.shardid = shard) then
        raise exception 'Citus has moved the schema fairlead to another node' using errcode = 'FL002';
    end if;
end
$_$;

CREATE FUNCTION fairlead.hold_tenant(tenant text) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform from fairlead.tenants t
        where t.slug = hold_tenant.tenant or t.id = fairlead.as_id(hold_tenant.tenant) for share;
    end if;
end
$$;

CREATE FUNCTION fairlead.invited_until(invited uuid) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select l.expires_at from fairlead.account_links l
    where l.user_id = invited and l.purpose = 'invitation' and l.used_at is null and l.revoked_at is null
$$;

CREATE FUNCTION fairlead.ip_of_session() RETURNS inet
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    select nullif(current_setting('fairlead.ip', true), '')::inet
$$;

CREATE FUNCTION fairlead.is_backed(maker uuid, token_role text) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select maker is null or exists (
        select from fairlead.users u
        where u.id = maker and u.disabled_at is null
            and (u.left_at is null or u.password_hash is not null) and case u.role
            when 'super_admin' then true
            when 'tenant_admin' then token_role <> 'super_admin'
            when 'operator' then token_role in ('operator', 'viewer')
            else token_role = u.role end)
$$;

CREATE FUNCTION fairlead.is_distributed() RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $_$
declare
    answer boolean := false;
begin
    if to_regclass('pg_catalog.pg_dist_schema') is not null then
        execute 'select exists (select from pg_catalog.pg_dist_schema where schemaid = $1)'
        into answer using 'fairlead'::regnamespace::oid;
    end if;
    return answer;
end
$_$;

CREATE FUNCTION fairlead.is_unused_bucket(definition uuid, tenant uuid, limit_key uuid, tokens double precision, counted_at timestamp with time zone, seconds double precision) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
declare
    all_of constant uuid := '00000000-0000-0000-0000-000000000000';
    rate jsonb;
begin
    if counted_at > clock_timestamp() - make_interval(secs => seconds) then
        return false;
    elsif definition = all_of and tenant = all_of then
        select s.rate into rate from fairlead.system s;
    elsif definition = all_of then
        select t.rate into rate from fairlead.tenants t where t.id = tenant;
    else
        select case when tenant = all_of then d.rate when is_unused_bucket.limit_key = all_of then d.rate_per_tenant
            else d.by_key -> 'rate' end into rate
        from fairlead.job_definitions d where d.id = definition;
    end if;
    return jsonb_typeof(rate) is distinct from 'object'
        or fairlead.tokens_in(tokens, counted_at, rate, clock_timestamp()) >= (rate ->> 'burst')::float8;
end
$$;

CREATE FUNCTION fairlead.jobs_with_key(key text, most integer) RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO ''
    AS $$
    select j.id from fairlead.jobs j
    where j.tenant_id = (select fairlead.tenant_of_session()) and j.dedupe_key is not null
        and hashtextextended(j.dedupe_key, 0) = hashtextextended(jobs_with_key.key, 0)
        and j.dedupe_key = jobs_with_key.key
    order by j.id desc limit jobs_with_key.most
$$;

CREATE FUNCTION fairlead.keep_keys(INOUT ready_rows tid[], OUT is_locked boolean, OUT held integer, OUT moment timestamp with time zone) RETURNS record
    LANGUAGE plpgsql
    SET enable_hashjoin TO 'on'
    AS $$
#variable_conflict use_column
declare
    -- the keys of the jobs, one place in each array; and those of them that this claim has locked
    definitions uuid[];
    tenants uuid[];
    limit_keys uuid[];
    number integer;
    has_rates boolean;
    in_order boolean;
    parked tid[];
begin
    is_locked := false;
    held := 0;
    select array_agg(k.definition_id), array_agg(k.tenant_id), array_agg(k.limit_key),
        bool_or(jsonb_typeof(d.by_key -> 'rate') = 'object'), bool_or((d.by_key -> 'fifo')::boolean)
    into definitions, tenants, limit_keys, has_rates, in_order
    from (
        select r.definition_id, r.tenant_id, r.limit_key from fairlead.ready r
        where r.ctid = any(keep_keys.ready_rows) and r.limit_key is not null
        group by r.definition_id, r.tenant_id, r.limit_key) k
    join fairlead.job_definitions d on d.id = k.definition_id
    where d.by_key is not null;
    if definitions is null then
        return;
    end if;
    number := cardinality(definitions);

    -- Inserting a row that another claim inserts now would wait for its commit: the try lock skips such rows. Some keys share
    -- a lock: the server has room for some thousands. A row that is new is locked.
    with known as (
        select o.definition_id, o.tenant_id, o.limit_key
        from unnest(definitions, tenants, limit_keys) as k(definition_id, tenant_id, limit_key)
        cross join lateral (
            select o.* from fairlead.key_locks o
            where o.definition_id = k.definition_id and o.tenant_id = k.tenant_id and o.limit_key = k.limit_key
            for update skip locked) o
    ), added as (
        insert into fairlead.key_locks (definition_id, tenant_id, limit_key)
        select k.definition_id, k.tenant_id, k.limit_key
        from unnest(definitions, tenants, limit_keys) as k(definition_id, tenant_id, limit_key)
        where case when not exists (
                select from fairlead.key_locks o
                where o.definition_id = k.definition_id and o.tenant_id = k.tenant_id and o.limit_key = k.limit_key)
            then pg_try_advisory_xact_lock(fairlead.key_lock_of(k.definition_id, k.tenant_id, k.limit_key)) end
        on conflict do nothing
        returning definition_id, tenant_id, limit_key
    )
    select array_agg(h.definition_id), array_agg(h.tenant_id), array_agg(h.limit_key) into definitions, tenants, limit_keys
    from (select * from known union all select * from added) h;
    if in_order then
        -- A key in strict order waits with its oldest job: who holds that one now may cancel it, and would not see the jobs
        -- that this claim held back.
        select array_agg(k.definition_id), array_agg(k.tenant_id), array_agg(k.limit_key) into definitions, tenants, limit_keys
        from unnest(definitions, tenants, limit_keys) as k(definition_id, tenant_id, limit_key)
        join fairlead.job_definitions d on d.id = k.definition_id
        cross join lateral (select case when (d.by_key -> 'fifo')::boolean then least((
            select r.job_id from fairlead.ready r
            where r.definition_id = k.definition_id and r.tenant_id = k.tenant_id and r.limit_key = k.limit_key
            order by r.definition_id, r.tenant_id, r.limit_key, r.job_id limit 1), (
            select l.job_id from fairlead.later l
            where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
            order by l.definition_id, l.tenant_id, l.limit_key, l.job_id limit 1)) end as job_id) oldest
        where oldest.job_id is null
            or exists (
                select from fairlead.ready r
                where r.definition_id = k.definition_id and r.tenant_id = k.tenant_id and r.limit_key = k.limit_key
                    and r.job_id = oldest.job_id
                for update skip locked)
            or exists (
                select from fairlead.later l
                where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
                    and l.job_id = oldest.job_id
                for update skip locked);
    end if;
    is_locked := coalesce(cardinality(definitions), 0) < number;
    if has_rates then
        insert into fairlead.rate_buckets as rate_buckets (definition_id, tenant_id, limit_key)
        select k.definition_id, k.tenant_id, k.limit_key
        from unnest(definitions, tenants, limit_keys) as k(definition_id, tenant_id, limit_key)
        join fairlead.job_definitions d on d.id = k.definition_id
        where jsonb_typeof(d.by_key -> 'rate') = 'object'
        -- locks it
        on conflict (definition_id, tenant_id, limit_key) do update set wake_at = rate_buckets.wake_at;
    end if;

    -- a new statement, which sees all leases that ended or began before the locks were free; its clock is later than they
    with clock as materialized (
        select clock_timestamp() as now
    ), key as materialized (
        select k.definition_id, k.tenant_id, k.limit_key, (d.by_key ->> 'max_running')::integer - (
                select count(*) from fairlead.leases l
                where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key) as room,
            case when has_rates and jsonb_typeof(d.by_key -> 'rate') = 'object' then (
                select floor(fairlead.tokens_in(b.tokens, b.counted_at, d.by_key -> 'rate', clock.now) + 1e-9)
                from fairlead.rate_buckets b
                where b.definition_id = k.definition_id and b.tenant_id = k.tenant_id and b.limit_key = k.limit_key)
                end as tokens,
            -- in strict order: no job starts before an older one that still waits, be it for a retry
            case when (d.by_key -> 'fifo')::boolean then least((
                select r.job_id from fairlead.ready r
                where r.definition_id = k.definition_id and r.tenant_id = k.tenant_id and r.limit_key = k.limit_key
                    and r.ctid <> all(keep_keys.ready_rows)
                order by r.definition_id, r.tenant_id, r.limit_key, r.job_id limit 1), (
                select l.job_id from fairlead.later l
                where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
                order by l.definition_id, l.tenant_id, l.limit_key, l.job_id limit 1)) end as oldest_waiting
        from clock, unnest(definitions, tenants, limit_keys) as k(definition_id, tenant_id, limit_key)
        join fairlead.job_definitions d on d.id = k.definition_id
    ), chosen as (
        select r.ctid as spot, r.job_id, r.definition_id, r.tenant_id, r.limit_key,
            r.limit_key is null or d.by_key is null as is_free,
            row_number() over (
                partition by r.definition_id, r.tenant_id, r.limit_key
                order by case when (d.by_key -> 'fifo')::boolean then 0 else r.priority end,
                    case when (d.by_key -> 'fifo')::boolean then null else r.scheduled_for end, r.job_id) as place
        from fairlead.ready r join fairlead.job_definitions d on d.id = r.definition_id
        where r.ctid = any(keep_keys.ready_rows)
    ), sorted as (
        -- jobs of keys that another transaction holds are in neither list: they stay in ready
        select c.spot, case when c.is_free then true when k.limit_key is not null
            then c.place <= least(k.room, k.tokens) and (k.oldest_waiting is null or c.job_id < k.oldest_waiting) end as may_start
        from chosen c left join key k using (definition_id, tenant_id, limit_key)
    )
    select array_agg(s.spot) filter (where s.may_start), array_agg(s.spot) filter (where not s.may_start), max(clock.now)
    into ready_rows, parked, moment
    from sorted s, clock;
    held := coalesce(cardinality(parked), 0);
    if not has_rates then
        moment := null;
    else
        update fairlead.rate_buckets b
        set tokens = fairlead.tokens_in(b.tokens, b.counted_at, s.rate, moment) - s.starts, counted_at = moment,
            -- if running jobs have to end first, their ends let the next ones go
            wake_at = case when s.held > 0 and (s.most is null or s.running + s.starts < s.most)
                then fairlead.next_token_at(b.tokens, b.counted_at, s.rate, 1 + s.starts) else b.wake_at end
        from (
            select r.definition_id, r.tenant_id, r.limit_key, d.by_key -> 'rate' as rate,
                (d.by_key ->> 'max_running')::integer as most, count(*) filter (where c.starts) as starts,
                count(*) filter (where not c.starts) as held, (
                select count(*) from fairlead.leases l
                where l.definition_id = r.definition_id and l.tenant_id = r.tenant_id and l.limit_key = r.limit_key)
                as running
            from (
                select unnest(ready_rows) as spot, true as starts union all select unnest(parked), false) c
            cross join lateral (select r.* from fairlead.ready r where r.ctid = c.spot) r
            join fairlead.job_definitions d on d.id = r.definition_id
            where jsonb_typeof(d.by_key -> 'rate') = 'object'
            group by r.definition_id, r.tenant_id, r.limit_key, d.by_key) s
        where b.definition_id = s.definition_id and b.tenant_id = s.tenant_id and b.limit_key = s.limit_key;
    end if;
    if held > 0 then
        with gone as (
            delete from fairlead.ready r where r.ctid = any(parked)
            returning r.job_id, r.tenant_id, r.definition_id, r.host_id, r.priority, r.limit_key
        )
        insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, held, limit_key)
        select p.job_id, p.tenant_id, p.definition_id, p.host_id, p.priority, j.scheduled_for, true, p.limit_key
        from gone p cross join lateral (
            select j.scheduled_for from fairlead.job_records j where j.id = p.job_id limit 1) j;
    end if;
end
$$;

CREATE FUNCTION fairlead.key_lock_of(definition uuid, tenant uuid, limit_key uuid) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select hashtextextended('fairlead.key_locks', 0)
        + (uuid_hash(definition) # uuid_hash(tenant) # uuid_hash(limit_key)) % 1024
$$;

CREATE FUNCTION fairlead.key_turn_of(definition uuid, tenant uuid, limit_key uuid) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select hashtextextended(concat_ws(' ', 'fairlead.limit_key', definition, tenant, limit_key), 0)
$$;

CREATE FUNCTION fairlead.label_texts(labels jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select coalesce(jsonb_object_agg(l.key, l.value), '{}') from jsonb_each_text(label_texts.labels) l
$$;

CREATE FUNCTION fairlead.leave_expired(INOUT ready_rows tid[], OUT canceled integer) RETURNS record
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    expired uuid[];
    kept tid[];
begin
    select array_agg(r.ctid) filter (where not j.is_over), array_agg(j.id) filter (where j.is_over and j.limit_key is null)
    into kept, expired
    from fairlead.ready r cross join lateral (
        select j.id, j.limit_key, coalesce(j.attempt_count = 0 and j.expires_at <= clock_timestamp(), false) as is_over
        from fairlead.job_records j where j.id = r.job_id limit 1) j
    where r.ctid = any(leave_expired.ready_rows);
    ready_rows := kept;
    canceled := 0;
    if expired is not null then
        canceled := cardinality(fairlead.cancel_waiting(
            expired, 'expired', 'It had not started when its time was over.', 'system'));
    end if;
end
$$;

CREATE FUNCTION fairlead.left_until(definition uuid, tenant uuid, due_at timestamp with time zone, prefer_seconds double precision, moment timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    AS $$
#variable_conflict use_column
declare
    until timestamptz := left_until.due_at + make_interval(secs => left_until.prefer_seconds);
begin
    if until <= left_until.moment or not exists (
        select from fairlead.job_definitions d
        join fairlead.job_workers w on coalesce(d.requires, '{}') || d.prefers <@ w.labels
            and (w.concurrency >= d.slots or (w.metadata @> '{"transport": "http"}' and not w.metadata ? 'slots'))
        where d.id = left_until.definition
            and w.last_seen_at > left_until.moment - interval '60 seconds' and w.drain_requested_at is null
            and (w.tenant_id is null or w.tenant_id = left_until.tenant)
            and (w.queues = '{}' or w.queues && array[d.key, d.key || ' ' || left_until.tenant]))
    then
        return null;
    end if;
    return until;
end
$$;

CREATE FUNCTION fairlead.let_held_go(definition uuid, tenant uuid, limit_key uuid, by_key jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    most constant integer := coalesce((by_key ->> 'max_running')::integer, 1);
    fifo constant boolean := coalesce((by_key -> 'fifo')::boolean, false);
begin
    with due as (
        delete from fairlead.later where ctid = any(array(
            -- each in the order of an index
            (select o.spot from (
                select l.ctid as spot from fairlead.later l
                where not fifo and l.held and l.definition_id = definition and l.tenant_id = tenant
                    and l.limit_key = let_held_go.limit_key
                order by l.definition_id, l.tenant_id, l.limit_key, l.priority, l.job_id
                limit most for update skip locked) o)
            union all
            (select o.spot from (
                select l.ctid as spot from fairlead.later l
                where fifo and l.held and l.definition_id = definition and l.tenant_id = tenant
                    and l.limit_key = let_held_go.limit_key
                order by l.definition_id, l.tenant_id, l.limit_key, l.job_id
                limit most for update skip locked) o)))
        returning job_id, tenant_id, definition_id, host_id, priority, limit_key
    )
    insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
    select u.job_id, u.tenant_id, u.definition_id, u.host_id, u.priority, j.at, u.limit_key
    from due u cross join lateral (
        select greatest(j.scheduled_for, j.queued_at) as at from fairlead.job_records j
        where j.id = u.job_id limit 1) j;
    if found then
        perform fairlead.notify_in_transaction('ready');
    end if;
end
$$;

CREATE FUNCTION fairlead.limit_key_of(by_key jsonb, payload jsonb) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when by_key is not null
        then md5((payload #> fairlead.path_of_pointer(by_key ->> 'pointer'))::text)::uuid end
$$;

CREATE FUNCTION fairlead.lineage_of(job uuid) RETURNS uuid[]
    LANGUAGE sql STABLE
    AS $_$
    with recursive line as (
        select j.* from (select) as always cross join lateral (
            select j.parent_id, j.workflow_run_id, j.created_by, j.source, j.source_ref, 1 as length
            from fairlead.jobs j where j.id = lineage_of.job limit 1) j
        union all
        select above.*, l.length + 1
        from line l
        cross join lateral (
            select coalesce(l.parent_id, (
                select r.started_by_job from fairlead.workflow_runs r where r.id = l.workflow_run_id)) as id) up
        cross join lateral (
            select j.parent_id, j.workflow_run_id, j.created_by, j.source, j.source_ref
            from fairlead.jobs j where j.id = up.id limit 1) above
        -- up to the first trigger; the bound ends a cycle
        where coalesce(l.created_by, '') not like 'trigger:%' and l.length < 100
    )
    select coalesce((
        select coalesce((
                select e.lineage from fairlead.events e
                where e.id = case when l.source = 'event' and l.source_ref ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                    then l.source_ref::uuid end), '{}')
            || substr(l.created_by, 9)::uuid
        from line l
        where l.created_by ~ '^trigger:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' order by l.length limit 1), '{}')
$_$;

CREATE FUNCTION fairlead.listens_to_ends(actor text) RETURNS boolean
    LANGUAGE sql STABLE
    AS $_$
    select exists (
        select from fairlead.job_triggers g
        where (g.event_name like 'job.%' or g.event_name like 'workflow.%')
            and g.id = case when listens_to_ends.actor ~ '^trigger:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                then substr(listens_to_ends.actor, 9)::uuid end)
$_$;

CREATE FUNCTION fairlead.move_on(ended jsonb, over jsonb DEFAULT '[]'::jsonb, settings jsonb DEFAULT '{}'::jsonb) RETURNS json
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    runs uuid[];
    of_runs uuid[];
    places integer[];
    ends text[];
    jobs uuid[];
    back json;
    freed_runs uuid[];
    freed_places integer[];
    freed_ran integer[];
    undo_runs uuid[];
    undo_places integer[];
    begun json;
begin
    select array_agg(j.workflow_run_id), array_agg(j.workflow_step), array_agg(g.status), array_agg(j.id)
    into of_runs, places, ends, jobs
    from jsonb_each_text(move_on.ended) as g(id, status)
    cross join lateral (
        select j.id, j.workflow_run_id, j.workflow_step from fairlead.job_records j where j.id = g.id::uuid limit 1) j
    -- not in the lookup: the planner would scan the whole index of runs while it believes that there are few steps
    where j.workflow_run_id is not null;
    runs := array(
        select distinct r.id from (
            select unnest(of_runs) union all
            select (o ->> 'run_id')::uuid from jsonb_array_elements(move_on.over) o) as r(id)
        order by r.id);
    if cardinality(runs) = 0 then
        return null;
    end if;
    -- only the transaction that holds a run's row changes its steps
    perform from fairlead.workflow_runs r where r.id = any(runs) order by r.id for update;

    with tallied as (
        select e.run_id, e.place, count(*) as jobs, count(*) filter (where e.status in ('failed', 'dead_letter')) as failed,
            count(*) filter (where e.status = 'canceled') as canceled
        from unnest(of_runs, places, ends) as e(run_id, place, status)
        where e.status not in ('queued', 'running') group by e.run_id, e.place
    ), running as materialized (
        select t.jobs, t.failed, t.canceled, s.spot from tallied t cross join lateral (
            select s.ctid as spot from fairlead.workflow_steps s
            where s.run_id = t.run_id and s.place = t.place and s.state = 'running' limit 1) s
    ), counted as (
        update fairlead.workflow_steps s
        set remaining = s.remaining - e.jobs, failed = s.failed + e.failed, canceled = s.canceled + e.canceled,
            state = case when s.remaining > e.jobs then 'running' when s.failed + e.failed > 0 then 'failed'
                when s.canceled + e.canceled > 0 then 'canceled' else 'succeeded' end,
            finished_at = case when s.remaining <= e.jobs then clock_timestamp() end
        from running e where s.ctid = e.spot
        returning s.run_id, s.place, s.name, s.state, s.next, s.on_failure, s.compensation, s.error
    ), ended as materialized (
        select e.*, e.state in ('failed', 'canceled') and e.on_failure <> 'continue' as stops
        from (
            select c.* from counted c where c.state <> 'running'
            union all
            select s.run_id, s.place, s.name, o.state, s.next, s.on_failure, s.compensation, o.error
            from jsonb_to_recordset(move_on.over) as o(run_id uuid, place int, state text, error jsonb)
            cross join lateral (
                select s.* from fairlead.workflow_steps s where s.run_id = o.run_id and s.place = o.place limit 1) s
        ) e
    ), run as (
        update fairlead.workflow_runs r
        set live = r.live - e.live, failing = r.failing or e.stops, error = coalesce(r.error, e.error)
        from (
            select e.run_id, count(*) as live, bool_or(e.stops) as stops,
                (array_agg(jsonb_build_object('step', e.name) || coalesce(e.error, '{}') order by e.place)
                    filter (where e.stops))[1] as error
            from ended e group by e.run_id) e
        where r.id = e.run_id
        returning r.id, r.failing or r.cancel_requested_at is not null as is_closing,
            r.cancel_requested_at is not null as is_canceling
    ), less as (
        -- steps of one layer often have the same next steps: unnested once
        select e.run_id, n.place, sum(e.steps) as steps, sum(e.ran) as ran
        from (
            select e.run_id, e.next, count(*)::int as steps, (count(*) filter (where e.state <> 'skipped'))::int as ran
            from run cross join ended e where e.run_id = run.id and not run.is_closing
            group by e.run_id, e.next) e
        cross join lateral unnest(e.next) as n(place)
        group by e.run_id, n.place
    ), waiting as materialized (
        select l.steps, l.ran, s.spot from less l cross join lateral (
            select s.ctid as spot from fairlead.workflow_steps s
            where s.run_id = l.run_id and s.place = l.place and s.state = 'waiting' limit 1) s
    ), begun as (
        update fairlead.workflow_steps s
        set pending = s.pending - w.steps, ran = s.ran + w.ran,
            state = case when s.pending = w.steps then 'running' else s.state end,
            remaining = case when s.pending = w.steps then 1 else 0 end,
            started_at = case when s.pending = w.steps then clock_timestamp() end
        from waiting w where s.ctid = w.spot
        returning s.run_id, s.place, s.pending, s.ran
    ), freed as (
        select array_agg(b.run_id) as runs, array_agg(b.place) as places, array_agg(b.ran) as ran
        from begun b where b.pending = 0
    ), undo as (
        select array_agg(e.run_id) as runs, array_agg(e.compensation) as places
        from ended e join run on run.id = e.run_id and not run.is_canceling
        where e.stops and e.compensation is not null
    )
    select freed.runs, freed.places, freed.ran, undo.runs, undo.places
    into freed_runs, freed_places, freed_ran, undo_runs, undo_places
    from freed, undo;

    if undo_runs is not null then
        with begun as (
            update fairlead.workflow_steps s set state = 'running', remaining = 1, started_at = clock_timestamp()
            from (select distinct u.run_id, u.place from unnest(undo_runs, undo_places) as u(run_id, place)) u
            where s.run_id = u.run_id and s.place = u.place and s.state = 'waiting'
            returning s.run_id, s.place
        )
        select freed_runs || array_agg(b.run_id), freed_places || array_agg(b.place),
            freed_ran || array_agg(0) into freed_runs, freed_places, freed_ran
        from begun b;
    end if;
    if cardinality(freed_runs) > 0 then
        update fairlead.workflow_runs r set live = r.live + f.steps
        from (select f.id, count(*) as steps from unnest(freed_runs) as f(id) group by f.id) f
        where r.id = f.id;
        begun := fairlead.release_steps(freed_runs, freed_places, freed_ran, move_on.settings);
    end if;
    if 'queued' = any(ends) then
        select json_agg(e.job) into back
        from unnest(jobs, of_runs, ends) as e(job, run_id, status) join fairlead.workflow_runs r on r.id = e.run_id
        where e.status = 'queued' and r.cancel_requested_at is not null;
    end if;
    return json_build_object(
        'released', begun -> 'released',
        'free', begun -> 'free',
        'definitions', begun -> 'definitions',
        'back', back,
        'runs', (
            select json_agg(json_build_object(
                'id', r.id, 'tenant_id', r.tenant_id, 'tenant', t.slug, 'tenant_name', t.name,
                'tenant_timezone', t.timezone, 'key', r.key, 'version', r.version, 'status', r.status, 'live', r.live,
                'failing', r.failing, 'is_canceling', r.cancel_requested_at is not null,
                'parent_job_id', r.parent_job_id, 'correlation_id', r.correlation_id,
                'input', case when begun ->> 'free' is not null or r.live = 0 then r.input end,
                'output_template', case when r.live = 0 then r.output_template end, 'error', r.error,
                'secret_paths', r.secret_paths))
            from unnest(runs) as i(id) join fairlead.workflow_runs r on r.id = i.id
            join fairlead.tenants t on t.id = r.tenant_id));
end
$$;

CREATE FUNCTION fairlead.need_read_committed() RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'jobs are claimed only in transactions with the isolation level READ COMMITTED'
            using errcode = 'feature_not_supported',
            hint = 'An older snapshot would not show which jobs run, so limits would not hold.';
    end if;
end
$$;

CREATE FUNCTION fairlead.needs_coordinator() RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
declare
    answer boolean := false;
begin
    if fairlead.is_distributed() then
        execute 'select not citus_is_coordinator()' into answer;
    end if;
    return answer;
end
$$;

CREATE FUNCTION fairlead.next_pair(after_tenant uuid, after_definition uuid, INOUT lap integer, place uuid, edge uuid, definitions uuid[], full_tenants jsonb, OUT tenant_id uuid, OUT definition_id uuid, OUT priority integer, OUT scheduled_for timestamp with time zone, OUT job_id uuid) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $$
#variable_conflict use_column
declare
    nobody constant uuid := '00000000-0000-0000-0000-000000000000';
    last_one constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    -- at the first tenant, the definitions up to this one have been visited
    done_definition uuid := next_pair.after_definition;
    from_tenant uuid := next_pair.after_tenant;
    found_tenant uuid;
    found_definition uuid;
begin
    loop
        found_tenant := null;
        if from_tenant is not null then
            select n.tenant_id, d.id into found_tenant, found_definition
            from unnest(next_pair.definitions) as d(id)
            cross join lateral (
                (select r.tenant_id from fairlead.ready r
                 where d.id > done_definition and r.host_id is null
                    and r.priority > -2147483648 and r.definition_id = d.id and r.tenant_id >= from_tenant
                 order by r.definition_id, r.tenant_id limit 1)
                union all
                (select r.tenant_id from fairlead.ready r
                 where d.id <= done_definition and r.host_id is null
                    and r.priority > -2147483648 and r.definition_id = d.id and r.tenant_id > from_tenant
                 order by r.definition_id, r.tenant_id limit 1)
            ) n
            where (n.tenant_id, d.id) <= (
                case next_pair.lap when 0 then last_one else next_pair.place end,
                case next_pair.lap when 0 then last_one else next_pair.edge end)
            order by n.tenant_id, d.id limit 1;
        end if;
        if found_tenant is null then
            exit when next_pair.lap = 1;
            lap := 1;
            from_tenant := nobody;
        else
            exit when (next_pair.full_tenants ? found_tenant::text) is not true
                and exists (select from fairlead.tenants t where t.id = found_tenant and t.paused_at is null);
            select t.id into from_tenant from fairlead.tenants t
            where t.paused_at is null and t.id > found_tenant
                and (next_pair.full_tenants ? t.id::text) is not true
            order by t.id limit 1;
        end if;
        done_definition := nobody;
    end loop;
    if found_tenant is not null then
        tenant_id := found_tenant;
        definition_id := found_definition;
        select r.priority, r.scheduled_for, r.job_id into priority, scheduled_for, job_id from fairlead.ready r
        where r.host_id is null and r.tenant_id = found_tenant and r.definition_id = found_definition
        order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1;
    end if;
end
$$;

CREATE FUNCTION fairlead.next_token_at(tokens double precision, counted_at timestamp with time zone, rate jsonb, wanted double precision) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select counted_at + make_interval(secs => least(3e9, ceil(
        greatest(0, least(1e12, wanted - tokens)) * (rate ->> 'per_seconds')::float8 * 1000000 / (rate ->> 'limit')::float8) / 1000000))
$$;

CREATE FUNCTION fairlead.notify_in_transaction(word text) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if current_setting('fairlead.notify', true) is distinct from 'off' then
        perform pg_notify('fairlead', notify_in_transaction.word);
    end if;
end
$$;

CREATE FUNCTION fairlead.open_definitions(served uuid[], served_pairs text[], moment timestamp with time zone, labels jsonb, most_slots integer) RETURNS uuid[]
    LANGUAGE plpgsql STABLE
    AS $$
#variable_conflict use_column
declare
    many constant integer := 32;
    open uuid[];
begin
    open := array(
        select d.id from fairlead.job_definitions d
        where (open_definitions.served is null or d.id = any(open_definitions.served)
                or d.id = any(array(select split_part(p, ' ', 1)::uuid from unnest(open_definitions.served_pairs) p)))
            and d.paused_at is null
            and (d.requires is null or d.requires <@ open_definitions.labels)
            and (open_definitions.most_slots is null or d.slots <= open_definitions.most_slots)
            -- not `exists`: for that the planner may read all of ready
            and (
                select true from fairlead.ready r
                where r.host_id is null and r.priority > -2147483648 and r.definition_id = d.id limit 1)
            and (d.rate is null
                or fairlead.rate_opens_at(d.id, null, d.rate, open_definitions.moment) is null)
            and (d.max_running is null or fairlead.definition_limit(d.id, d.max_running) > fairlead.running_in('definition', d.id, null))
        limit many + 1);
    return case when cardinality(open) <= many then open end;
end
$$;

CREATE FUNCTION fairlead.options_fit(tags text[], timeout double precision, expires_in double precision, unique_for double precision, debounce jsonb, dedupe_key text, scheduled_for timestamp with time zone) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select coalesce(cardinality(tags), 0) <= 16
        and (tags is null or array_ndims(tags) is not distinct from case when cardinality(tags) > 0 then 1 end)
        and not exists (
            select from unnest(tags) as t(tag)
            where t.tag is null or length(t.tag) not between 1 and 64 or t.tag <> btrim(t.tag, E' \t\n\r\f\v')
                or t.tag ~ E'[,\\x01-\\x1f\\x7f]')
        and (select count(distinct t.tag) = count(*) from unnest(tags) as t(tag))
        and coalesce(timeout between 1 and 2592000, true)
        and coalesce(expires_in > 0 and expires_in <= 315360000, true)
        and (unique_for is null or unique_for > 0 and unique_for <= 315360000 and dedupe_key is not null)
        and (debounce is null or dedupe_key is null and scheduled_for is null
            and jsonb_typeof(debounce) = 'object'
            and debounce - '{key,seconds,max_seconds,payload}'::text[] = '{}'
            and jsonb_typeof(debounce -> 'key') = 'string' and length(debounce ->> 'key') between 1 and 1048576
            and jsonb_typeof(debounce -> 'seconds') = 'number'
            and coalesce(jsonb_typeof(debounce -> 'max_seconds') in ('number', 'null'), true)
            and coalesce(debounce ->> 'payload' in ('last', 'first'), not debounce ? 'payload')
            -- its own case: the values are numbers only if what is above holds
            and case when jsonb_typeof(debounce -> 'seconds') = 'number'
                then (debounce ->> 'seconds')::numeric > 0 and (debounce ->> 'seconds')::numeric <= 315360000
                    and case when jsonb_typeof(debounce -> 'max_seconds') = 'number'
                        then (debounce ->> 'max_seconds')::numeric between (debounce ->> 'seconds')::numeric and 315360000
                        else true end
                else false end)
$$;

CREATE FUNCTION fairlead.path_of_pointer(pointer text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select array_agg(replace(replace(part, '~1', '/'), '~0', '~') order by n)
    from regexp_split_to_table(substr(pointer, 2), '/') with ordinality as p(part, n)
$$;

CREATE FUNCTION fairlead.prepare_audit_days(days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

CREATE FUNCTION fairlead.principal_of_session() RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    select nullif(current_setting('fairlead.principal_id', true), '')::uuid
$$;

CREATE FUNCTION fairlead.quota_of(own jsonb, settings jsonb, quota text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select nullif(coalesce((own ->> quota)::bigint, (settings ->> quota)::bigint, case quota
        when 'queued_jobs' then 1000000
        when 'run_jobs' then 100000
        when 'stored_bytes' then 107374182400 end), 0)
$$;

CREATE FUNCTION fairlead.rate_opens_at(definition uuid, tenant uuid, rate jsonb, moment timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    AS $$
declare
    all_of constant uuid := '00000000-0000-0000-0000-000000000000';
    opens timestamptz;
begin
    select fairlead.next_token_at(b.tokens, b.counted_at, rate, least(b.needed, (rate ->> 'burst')::float8)) into opens
    from fairlead.rate_buckets b
    where b.definition_id = coalesce(definition, all_of) and b.tenant_id = coalesce(tenant, all_of) and b.limit_key = all_of;
    return case when opens > moment then opens end;
end
$$;

CREATE FUNCTION fairlead.rate_room(tenants uuid[], definitions uuid[], system_rate jsonb, INOUT missed text[], INOUT room jsonb, OUT buckets jsonb, OUT opens_at timestamp with time zone) RETURNS record
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    all_of constant uuid := '00000000-0000-0000-0000-000000000000';
begin
    select jsonb_agg(jsonb_build_object(
        'name', s.name, 'definition_id', s.definition_id, 'tenant_id', s.tenant_id, 'rate', s.rate))
    into buckets
    from (
        select 'system' as name, all_of as definition_id, all_of as tenant_id, system_rate as rate
        union all
        select t.id::text, all_of, t.id, t.rate
        from fairlead.tenants t where t.id = any(rate_room.tenants)
        union all
        select d.id::text, d.id, all_of, d.rate
        from fairlead.job_definitions d where d.id = any(rate_room.definitions)
        union all
        select d.id || ' ' || p.tenant_id, d.id, p.tenant_id, d.rate_per_tenant
        from unnest(rate_room.tenants, rate_room.definitions) as p(tenant_id, definition_id)
        join fairlead.job_definitions d on d.id = p.definition_id
    ) s
    where s.rate is not null;
    if buckets is null then
        return;
    end if;

    -- inserting a row that another claim inserts now would wait for its commit: the try lock skips such rows
    insert into fairlead.rate_buckets (definition_id, tenant_id)
    select b.definition_id, b.tenant_id
    from jsonb_to_recordset(buckets) as b(definition_id uuid, tenant_id uuid)
    where case when not exists (
            select from fairlead.rate_buckets k
            where k.definition_id = b.definition_id and k.tenant_id = b.tenant_id and k.limit_key = all_of)
        then pg_try_advisory_xact_lock(
            hashtextextended(concat_ws(' ', 'fairlead.rate_buckets', b.definition_id, b.tenant_id), 0))
        end
    on conflict do nothing;

    with held as materialized (
        select b.name, b.rate, k.tokens, k.counted_at, k.needed
        from jsonb_to_recordset(buckets) as b(name text, definition_id uuid, tenant_id uuid, rate jsonb)
        join fairlead.rate_buckets k
            on k.definition_id = b.definition_id and k.tenant_id = b.tenant_id and k.limit_key = all_of
        for update of k skip locked
    ), clock as materialized (
        -- after the last lock
        select clock_timestamp() as now from (select count(*) from held) locked
    ), tokens as (
        select h.name, greatest(0, floor(
                fairlead.tokens_in(h.tokens, h.counted_at, h.rate, c.now) + 1e-9))::integer as number,
            fairlead.next_token_at(
                h.tokens, h.counted_at, h.rate, least(h.needed, (h.rate ->> 'burst')::float8)) as opens_at
        from held h, clock c
    )
    select (select min(t.opens_at) from tokens t where t.number < 1), rate_room.missed || array(
            select b ->> 'name' from jsonb_array_elements(buckets) b
            where not exists (select from tokens t where t.name = b ->> 'name')),
        (
            select jsonb_object_agg(a.name, a.number) from (
                select a.name, min(a.number) as number from (
                    select r.key as name, r.value::integer as number from jsonb_each_text(coalesce(rate_room.room, '{}')) r
                    union all
                    select b ->> 'name', coalesce(t.number, 0)
                    from jsonb_array_elements(buckets) b left join tokens t on t.name = b ->> 'name'
                ) a group by a.name) a)
    into opens_at, missed, room;
end
$$;

CREATE FUNCTION fairlead.rates_of(tenant uuid, definition uuid) RETURNS TABLE(n integer, scope text, rate jsonb, opens_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select one.n, one.scope, one.rate, fairlead.rate_opens_at(one.definition_id, one.tenant_id, one.rate, clock_timestamp())
    from fairlead.system s, fairlead.tenants t, fairlead.job_definitions d, lateral (values
        (1, 'system', null::uuid, null::uuid, s.rate), (2, 'tenant', null, t.id, t.rate),
        (3, 'definition', d.id, null, d.rate), (4, 'definition_tenant', d.id, t.id, d.rate_per_tenant))
        as one(n, scope, definition_id, tenant_id, rate)
    where t.id = rates_of.tenant and d.id = rates_of.definition and one.rate is not null
        -- of the caller's own tenant only, if it has one
        and coalesce(fairlead.tenant_of_session(), t.id) = t.id
$$;

CREATE FUNCTION fairlead.read_joined(request text) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    given_id constant uuid := (read_joined.request::jsonb ->> 'job_id')::uuid;
    given_limit constant integer := (read_joined.request::jsonb ->> 'limit')::integer;
begin
    return jsonb_build_object(
        'job', (
            select to_jsonb(f) from (
select j.id, j.tenant_id, t.slug as tenant, d.key as definition_key, j.status, j.source, j.source_ref,
    j.priority, j.payload, j.output, j.error, j.progress, j.cost_cents, j.dedupe_key, j.correlation_id, j.tags,
    j.timeout_seconds, j.expires_at,
    j.parent_id, j.workflow_run_id, j.host_id, j.resource_id, j.scheduled_for, j.queued_at, j.started_at,
    j.finished_at, j.lease_expires_at, j.attempt_count, j.failure_count, j.lost_count,
    j.max_attempts, j.claimed_by_worker, j.cancel_requested_at,
    case when j.status <> 'succeeded' then j.last_error end as last_error, j.created_by,
    d.secret_paths || coalesce(j.secret_paths, '{}') as secret_paths
from
                fairlead.jobs j
join fairlead.tenants t on t.id = j.tenant_id
join fairlead.job_definitions d on d.id = j.definition_id
where
                j.id = given_id
            ) f),
        'attempts', (
            select coalesce(jsonb_agg(to_jsonb(f) order by f.attempt_no), '[]') from (
select a.id, a.job_id, a.attempt_no, a.worker_id, a.pid, a.status, a.started_at, a.finished_at, a.duration_ms,
    a.queue_ms, a.exit_code, a.signal, a.cost_cents, a.error_text, a.stdout_tail, a.stderr_tail
from fairlead.attempts a where a.job_id = given_id
order by a.attempt_no desc limit given_limit
            ) f))::text;
end
$$;

CREATE FUNCTION fairlead.refusal_of(payload jsonb, priority integer, scheduled_for timestamp with time zone, max_attempts integer, dedupe_key text, correlation_id text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
    select case
        when jsonb_typeof(payload) is distinct from 'object' then 'payload_invalid'
        when octet_length(payload::text) > 16777216 then 'payload_too_large'
        when payload @? '$.**{500} ? (@.type() == "object" || @.type() == "array")' then 'payload_too_deep'
        -- more than 1024 bits: outside the range of a double
        when payload @? '$.** ? (@.type() == "number" && (@ > 1.797693134862315907e308 || @ < -1.797693134862315907e308))'
            then 'payload_not_json'
        when abs(priority) > 1000000
            or scheduled_for < '1970-01-01 00:00:00+00' or scheduled_for >= '3000-01-01 00:00:00+00'
            or max_attempts not between 1 and 1000
            or length(dedupe_key) not between 1 and 1048576
            or length(correlation_id) not between 1 and 255
            then 'invalid_input'
        -- reserved for the system
        when starts_with(dedupe_key, 'fairlead:') then 'key_reserved'
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

CREATE FUNCTION fairlead.release_keys(definitions uuid[], tenants uuid[], limit_keys uuid[], tidy boolean DEFAULT true) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_hashjoin TO 'on'
    AS $$
#variable_conflict use_column
declare
    -- the keys that hold jobs back
    held_definitions uuid[];
    held_tenants uuid[];
    held_keys uuid[];
    -- with `tidy`: the locks that nothing uses
    unused tid[];
    released bigint;
    moment timestamptz;
begin
    perform from (
        select distinct k.definition_id, k.tenant_id, k.limit_key
        from unnest(release_keys.definitions, release_keys.tenants, release_keys.limit_keys)
            as k(definition_id, tenant_id, limit_key)
        where k.limit_key is not null
        order by k.definition_id, k.tenant_id, k.limit_key) k
    cross join lateral (
        select from fairlead.key_locks o
        where o.definition_id = k.definition_id and o.tenant_id = k.tenant_id and o.limit_key = k.limit_key
        for update) o;

    -- a new statement, which sees what the holders of the locks did
    select array_agg(k.definition_id) filter (where k.is_held), array_agg(k.tenant_id) filter (where k.is_held),
        array_agg(k.limit_key) filter (where k.is_held), array_agg(k.spot) filter (where release_keys.tidy and not k.is_held and not exists (
            select from fairlead.leases l
            where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key)
            and not exists (
            select from fairlead.ready r
            where r.definition_id = k.definition_id and r.tenant_id = k.tenant_id and r.limit_key = k.limit_key))
    into held_definitions, held_tenants, held_keys, unused
    from (
        select k.definition_id, k.tenant_id, k.limit_key, o.spot, exists (
            select from fairlead.later l
            where l.held and l.definition_id = k.definition_id and l.tenant_id = k.tenant_id
                and l.limit_key = k.limit_key) as is_held
        from (
            select distinct k.definition_id, k.tenant_id, k.limit_key
            from unnest(release_keys.definitions, release_keys.tenants, release_keys.limit_keys)
                as k(definition_id, tenant_id, limit_key)
            where k.limit_key is not null) k
        left join lateral (
            select o.ctid as spot from fairlead.key_locks o
            where release_keys.tidy and o.definition_id = k.definition_id and o.tenant_id = k.tenant_id and o.limit_key = k.limit_key) o on true) k;
    if unused is not null then
        delete from fairlead.key_locks o where o.ctid = any(unused);
    end if;
    if exists (select from fairlead.rate_buckets b where b.wake_at is not null) then
        -- keys of which nothing waits any more
        update fairlead.rate_buckets b set wake_at = null
        from unnest(release_keys.definitions, release_keys.tenants, release_keys.limit_keys)
            as k(definition_id, tenant_id, limit_key)
        where b.definition_id = k.definition_id and b.tenant_id = k.tenant_id and b.limit_key = k.limit_key
            and b.wake_at is not null and not exists (
                select from fairlead.later l
                where l.held and l.definition_id = k.definition_id and l.tenant_id = k.tenant_id
                    and l.limit_key = k.limit_key);
    end if;
    if held_keys is null then
        return 0;
    end if;

    moment := clock_timestamp();
    with key as materialized (
        select k.definition_id, k.tenant_id, k.limit_key, d.by_key,
            coalesce((d.by_key -> 'fifo')::boolean, false) as fifo
        from unnest(held_definitions, held_tenants, held_keys) as k(definition_id, tenant_id, limit_key)
        join fairlead.job_definitions d on d.id = k.definition_id
    ), counted as materialized (
        select k.*, (
            select count(*) from fairlead.leases l
            where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key) as running, (
            select count(*) from fairlead.ready r
            where r.definition_id = k.definition_id and r.tenant_id = k.tenant_id and r.limit_key = k.limit_key
                -- in strict order, the newer ones take no place: none of them may start before the first held one
                and (not k.fifo or r.job_id < (
                    select l.job_id from fairlead.later l
                    where l.held and l.definition_id = k.definition_id and l.tenant_id = k.tenant_id
                        and l.limit_key = k.limit_key
                    order by l.definition_id, l.tenant_id, l.limit_key, l.job_id limit 1))) as ready
        from key k
    ), room as materialized (
        select c.*, b.ctid as bucket,
            -- without a limit any more: some at a time, and their ends let the next ones go
            case when c.by_key is not null then greatest(0, least((c.by_key ->> 'max_running')::integer - c.running,
                case when jsonb_typeof(c.by_key -> 'rate') = 'object'
                    then coalesce(floor(fairlead.tokens_in(b.tokens, b.counted_at, c.by_key -> 'rate', moment) + 1e-9), 1) end) - c.ready)::bigint
                else 1000 end as free
        from counted c left join fairlead.rate_buckets b
            using (definition_id, tenant_id, limit_key)
    ), next as materialized (
        -- how many may go
        select k.definition_id, k.tenant_id, k.limit_key, n.number from room k cross join lateral (
            select count(*) as number from (
                select from fairlead.later l
                where l.held and l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
                limit k.free) l) n
    ), due as (
        delete from fairlead.later where ctid = any(array(
            select l.spot from room k cross join lateral (
                -- each in the order of an index
                (select o.spot from (
                    select l.ctid as spot from fairlead.later l
                    where not k.fifo and l.held and l.definition_id = k.definition_id
                        and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
                    order by l.definition_id, l.tenant_id, l.limit_key, l.priority, l.job_id
                    limit k.free for update skip locked) o)
                union all
                (select o.spot from (
                    select l.ctid as spot from fairlead.later l
                    where k.fifo and l.held and l.definition_id = k.definition_id
                        and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
                        and l.job_id <= (
                            select max(o.job_id::text)::uuid from (
                                select l.job_id from fairlead.later l
                                where l.held and l.definition_id = k.definition_id
                                    and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
                                order by l.definition_id, l.tenant_id, l.limit_key, l.job_id limit k.free) o)
                    order by l.definition_id, l.tenant_id, l.limit_key, l.job_id
                    limit k.free for update skip locked) o)
            ) l))
        returning job_id, tenant_id, definition_id, host_id, priority, limit_key
    ), moved as (
        insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
        select u.job_id, u.tenant_id, u.definition_id, u.host_id, u.priority, j.at, u.limit_key
        from due u cross join lateral (
            select greatest(j.scheduled_for, j.queued_at) as at from fairlead.job_records j where j.id = u.job_id limit 1) j
        returning 1
    ), skipped as (
        select n.definition_id, n.tenant_id, n.limit_key from next n
        where n.number > (select count(*) from due u
            where u.definition_id = n.definition_id and u.tenant_id = n.tenant_id and u.limit_key = n.limit_key)
    ), looked_at_again as (
        insert into fairlead.rate_buckets as rate_buckets (definition_id, tenant_id, limit_key, wake_at)
        select s.definition_id, s.tenant_id, s.limit_key, moment + interval '1 second' from skipped s
        on conflict (definition_id, tenant_id, limit_key) do update
            -- never in the past, or the stager would look again at once, and again
            set wake_at = case when rate_buckets.wake_at > moment then least(rate_buckets.wake_at, excluded.wake_at)
                else excluded.wake_at end
    ), woken as (
        -- jobs that a rate still holds back go on when there is a token that the ready ones leave
        update fairlead.rate_buckets b
        set wake_at = case when jsonb_typeof(k.by_key -> 'rate') = 'object'
            and (k.by_key ->> 'max_running' is null or k.running + k.ready + k.freed < (k.by_key ->> 'max_running')::integer)
            and exists (
                select from fairlead.later l
                where l.held and l.definition_id = k.definition_id and l.tenant_id = k.tenant_id
                    and l.limit_key = k.limit_key offset k.freed)
            then greatest(moment, fairlead.next_token_at(
                b.tokens, b.counted_at, k.by_key -> 'rate', 1 + k.ready + k.freed)) end
        from (
            select k.*, (select count(*) from due u
                where u.definition_id = k.definition_id and u.tenant_id = k.tenant_id and u.limit_key = k.limit_key) as freed
            from room k where k.bucket is not null and not exists (
                select from skipped s
                where s.definition_id = k.definition_id and s.tenant_id = k.tenant_id and s.limit_key = k.limit_key)) k
        where b.ctid = k.bucket
    )
    select count(*) into released from moved;
    return released;
end
$$;

CREATE FUNCTION fairlead.release_steps(runs uuid[], places integer[], ran integer[], settings jsonb) RETURNS json
    LANGUAGE plpgsql
    AS $$
declare
    new fairlead.step_job[];
    taken integer[];
    free json;
    definitions json;
begin
    select array_agg(row(
            fairlead.uuid7(), f.run_id, r.tenant_id, r.key, r.correlation_id, f.place, null, d.id,
            coalesce((s.spec ->> 'priority')::int, d.default_priority),
            coalesce((s.spec ->> 'max_attempts')::int, d.max_attempts), (s.spec ->> 'timeout_seconds')::int, s.name,
            coalesce(s.spec -> 'payload', s.spec -> 'sleep', s.spec -> 'wait_for_event', '{}'), null, null, null,
            case when s.spec ? 'tags' then array(select jsonb_array_elements_text(s.spec -> 'tags')) end,
            (s.spec ->> 'expires_in_seconds')::float8)::fairlead.step_job order by f.place),
        array_agg(f.at)
    into new, taken
    from unnest(release_steps.runs, release_steps.places, release_steps.ran) with ordinality as f(run_id, place, ran, at)
    cross join lateral (
        select s.name, s.spec, s.before, s.definition_key, s.checked_version from fairlead.workflow_steps s
        where s.run_id = f.run_id and s.place = f.place limit 1) s
    cross join lateral (
        select d.id, d.default_priority, d.max_attempts from fairlead.job_definitions d
        where d.key = s.definition_key and d.version = s.checked_version
            -- a process seals secrets: the database has no key
            and (d.secret_paths = '{}' or not exists (
                select from fairlead.system y where y.encrypted_since is not null)) limit 1) d
    cross join lateral (
        select r.tenant_id, r.key, r.correlation_id from fairlead.workflow_runs r where r.id = f.run_id limit 1) r
    -- if all steps before it were skipped, the step is skipped
    where f.ran > 0 or cardinality(s.before) = 0;

    if new is not null then
        if fairlead.step_jobs_fit(new, release_steps.settings) then
            perform fairlead.add_step_jobs(new);
        else
            new := null;
            taken := null;
        end if;
    end if;
    if cardinality(release_steps.runs) > coalesce(cardinality(new), 0) then
        select json_agg(json_build_array(
                f.run_id, f.place, s.name, s.spec::text, cardinality(s.before), f.ran, s.definition_key,
                case when cardinality(s.before) = 1 then (
                    select b.name from fairlead.workflow_steps b where b.run_id = f.run_id and b.place = s.before[1])
                end) order by f.place),
            fairlead.definitions_of(array_agg(distinct s.definition_key))
        into free, definitions
        from unnest(release_steps.runs, release_steps.places, release_steps.ran) with ordinality
            as f(run_id, place, ran, at)
        cross join lateral (
            select s.name, s.spec, s.before, s.definition_key from fairlead.workflow_steps s
            where s.run_id = f.run_id and s.place = f.place limit 1) s
        where taken is null or f.at <> all(taken);
    end if;
    return json_build_object(
        'free', free, 'definitions', definitions, 'released', coalesce(cardinality(new), 0));
end
$$;

CREATE FUNCTION fairlead.resolve(tenant text, definition_key text, expected_version integer) RETURNS TABLE(tenant_id uuid, definition_id uuid, default_priority integer, max_attempts integer, refusal text, definition jsonb, by_key jsonb, sealed_paths text[])
    LANGUAGE sql STABLE
    AS $$
    select t.id, d.id, d.default_priority, d.max_attempts,
        case
            when t.id is null then 'tenant_unknown'
            when t.placement <> 'here' then case when t.placement = 'moved' then 'tenant_moved' else 'tenant_moving' end
            when d.id is null or not t.id = any(d.only_tenants) then 'definition_unknown'
            when not d.is_active then 'definition_inactive'
            when expected_version <> d.version then 'definition_changed'
        end,
        case when d.is_active and expected_version <> d.version then
            jsonb_build_object('key', d.key, 'version', d.version, 'arg_schema', d.arg_schema,
                'resource_pointer', d.resource_pointer)
        end,
        d.by_key,
        case when d.secret_paths <> '{}' and (select s.encrypted_since from fairlead.system s) is not null
            then d.secret_paths end
    from (select) as always
    left join fairlead.tenants t on t.id = coalesce(
        (select s.id from fairlead.tenants s where s.slug = tenant), fairlead.as_id(tenant))
    left join fairlead.job_definitions d on d.key = definition_key
$$;

CREATE FUNCTION fairlead.resource_named(definition_id uuid, payload jsonb) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    select coalesce((
        select jsonb_build_object(path.steps[cardinality(path.steps)], resource_named.payload #>> path.steps)
        from fairlead.job_definitions d cross join lateral fairlead.path_of_pointer(d.resource_pointer) as path(steps)
        where d.id = resource_named.definition_id and d.resource_pointer is not null
            and resource_named.payload #>> path.steps is not null
            and not exists (
                select from unnest(d.secret_paths) as secret(path)
                where secret.path like '%*%' or starts_with(d.resource_pointer || '/', secret.path || '/'))), '{}')
$$;

CREATE FUNCTION fairlead.room_in_run(root uuid, more bigint, settings jsonb DEFAULT '{}'::jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    allowed bigint;
    used bigint;
    number bigint;
    level constant text := current_setting('transaction_isolation');
begin
    select fairlead.quota_of(t.quotas, room_in_run.settings, 'run_jobs') into allowed
    from fairlead.workflow_runs r join fairlead.tenants t on t.id = r.tenant_id where r.id = room_in_run.root;
    if allowed is null or level = 'serializable' then
        return null;
    end if;
    select coalesce(sum(j.jobs), 0), count(*) into used, number
    from fairlead.run_jobs j where j.root_run_id = room_in_run.root;
    if used + room_in_run.more > allowed then
        return jsonb_build_object('quota', 'run_jobs', 'used', used, 'allowed', allowed, 'run_id', room_in_run.root);
    end if;
    if number > 100 and level = 'read committed' then
        with gone as (
            delete from fairlead.run_jobs where ctid = any(array(
                select j.ctid from fairlead.run_jobs j where j.root_run_id = room_in_run.root for update skip locked))
            returning root_run_id, tenant_id, jobs
        )
        insert into fairlead.run_jobs (root_run_id, tenant_id, jobs)
        select root_run_id, tenant_id, sum(jobs) from gone group by root_run_id, tenant_id;
    end if;
    return null;
end
$$;

CREATE FUNCTION fairlead.room_of(tenant uuid, more bigint, settings jsonb DEFAULT '{}'::jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    use record;
    allowed bigint;
    used bigint := 0;
    roomy timestamptz;
    level constant text := current_setting('transaction_isolation');
begin
    select t.quotas, u.roomy_until, coalesce(u.stored_bytes, 0) as stored_bytes into use
    from fairlead.tenants t left join fairlead.tenant_use u on u.tenant_id = t.id where t.id = room_of.tenant;
    if not found or room_of.more <= 10 and use.roomy_until > clock_timestamp() then
        return null;
    end if;
    allowed := fairlead.quota_of(use.quotas, room_of.settings, 'stored_bytes');
    if use.stored_bytes >= allowed then
        return jsonb_build_object('quota', 'stored_bytes', 'used', use.stored_bytes, 'allowed', allowed);
    end if;
    allowed := fairlead.quota_of(use.quotas, room_of.settings, 'queued_jobs');
    -- a serializable transaction that counts would conflict with every concurrent enqueue
    if allowed is not null and level <> 'serializable' then
        used := greatest(0,
            coalesce((select sum(l.queued) from fairlead.count_levels l where l.tenant_id = room_of.tenant), 0)
            + coalesce((select sum(c.queued) from fairlead.counts c
                where not c.leveled and c.tenant_id = room_of.tenant), 0));
        if used + room_of.more > allowed then
            return jsonb_build_object('quota', 'queued_jobs', 'used', used, 'allowed', allowed);
        end if;
    end if;
    roomy := clock_timestamp() + make_interval(secs => least(60, coalesce(allowed - used - room_of.more, 1000000) / 10000.0));
    if level = 'read committed' and (use.roomy_until < clock_timestamp() or use.roomy_until > roomy) then
        update fairlead.tenant_use u set roomy_until = roomy
        where u.tenant_id = any(array(
            select s.tenant_id from fairlead.tenant_use s where s.tenant_id = room_of.tenant for no key update skip locked));
    end if;
    return null;
end
$$;

CREATE FUNCTION fairlead.root_run_of(job uuid) RETURNS uuid
    LANGUAGE sql STABLE
    AS $$
    select coalesce(j.root_run_id, (
        select coalesce(r.root_run_id, r.id) from fairlead.workflow_runs r where r.id = j.workflow_run_id))
    from fairlead.jobs j where j.id = root_run_of.job
$$;

CREATE FUNCTION fairlead.run_on_coordinator(statement text) RETURNS text
    LANGUAGE plpgsql
    AS $$
declare
    answer record;
begin
    select c.success, c.result into answer from run_command_on_coordinator(run_on_coordinator.statement) c;
    if answer.success is not true then
        raise exception 'the coordinator of Citus did not run it: %', answer.result
            using errcode = case when answer.result like '%lock timeout%' then 'lock_not_available' else 'raise_exception' end;
    end if;
    return answer.result;
end
$$;

CREATE FUNCTION fairlead.running_in(scope text, scope_id uuid, other_id uuid) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
declare
    number bigint;
begin
    if running_in.scope = 'tenant' then
        select count(*) into number from fairlead.leases l where l.tenant_id = running_in.scope_id;
    elsif running_in.scope = 'definition' then
        select count(*) into number from fairlead.leases l where l.definition_id = running_in.scope_id;
    elsif running_in.scope = 'definition_tenant' then
        select count(*) into number from fairlead.leases l
        where l.definition_id = running_in.scope_id and l.tenant_id = running_in.other_id;
    else
        select count(*) into number from fairlead.leases l where l.host_id = running_in.scope_id;
    end if;
    return number;
end
$$;

CREATE FUNCTION fairlead.spend_rates(ready_rows tid[], buckets jsonb, moment timestamp with time zone, in_turn tid[]) RETURNS tid[]
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    all_of constant uuid := '00000000-0000-0000-0000-000000000000';
    kept tid[] := ready_rows;
    -- tokens left in each bucket
    tokens jsonb;
    job record;
    short text[];
begin
    if exists (select from jsonb_array_elements(buckets) b where b -> 'rate' ->> 'cost' is not null) then
        select jsonb_object_agg(b.name, fairlead.tokens_in(k.tokens, k.counted_at, b.rate, moment))
        into tokens
        from jsonb_to_recordset(buckets) as b(name text, definition_id uuid, tenant_id uuid, rate jsonb)
        join fairlead.rate_buckets k
            on k.definition_id = b.definition_id and k.tenant_id = b.tenant_id and k.limit_key = all_of;
        kept := '{}';
        for job in
            select r.spot, c.costs
            from unnest(in_turn) with ordinality as r(spot, n)
            cross join lateral (select * from fairlead.ready q where q.ctid = r.spot) q
            cross join lateral (
                select jsonb_object_agg(b.name, array[
                    fairlead.cost_of(b.rate ->> 'cost', j.payload), (b.rate ->> 'burst')::float8]) as costs
                from fairlead.job_records j,
                    jsonb_to_recordset(buckets) as b(name text, definition_id uuid, tenant_id uuid, rate jsonb)
                where j.id = q.job_id and b.definition_id in (q.definition_id, all_of) and b.tenant_id in (q.tenant_id, all_of)) c
            where r.spot = any(ready_rows)
            order by r.n
        loop
            select array_agg(c.name) into short
            from jsonb_each(job.costs) as c(name, cost)
            where (tokens ->> c.name)::float8 + 1e-9 < least((c.cost ->> 0)::float8, (c.cost ->> 1)::float8);
            if short is null then
                kept := kept || job.spot;
                -- no bucket limits the jobs of some definitions
                if job.costs is not null then
                    select tokens || jsonb_object_agg(c.name, (tokens ->> c.name)::float8 - (c.cost ->> 0)::float8) into tokens
                    from jsonb_each(job.costs) as c(name, cost);
                end if;
            else
                -- those behind it wait, too: it would otherwise never find enough tokens
                update fairlead.rate_buckets k set needed = (job.costs -> b.name ->> 0)::float8
                from jsonb_to_recordset(buckets) as b(name text, definition_id uuid, tenant_id uuid)
                where b.name = any(short) and k.definition_id = b.definition_id and k.tenant_id = b.tenant_id
                    and k.limit_key = all_of;
                exit;
            end if;
        end loop;
    end if;
    if kept = '{}' then
        return null;
    end if;

    update fairlead.rate_buckets k
    set tokens = fairlead.tokens_in(k.tokens, k.counted_at, s.rate, moment) - s.number, counted_at = moment,
        needed = case when cardinality(kept) = cardinality(ready_rows) then 1 else k.needed end
    from (
        select b.definition_id, b.tenant_id, b.rate, sum(case when b.rate ->> 'cost' is null then r.number
            else (
                select sum(fairlead.cost_of(b.rate ->> 'cost', j.payload))
                from fairlead.ready q join fairlead.job_records j on j.id = q.job_id
                where q.ctid = any(kept) and q.tenant_id = r.tenant_id and q.definition_id = r.definition_id) end) as number
        from (
            select r.tenant_id, r.definition_id, count(*) as number from fairlead.ready r
            where r.ctid = any(kept) group by r.tenant_id, r.definition_id) r
        join jsonb_to_recordset(buckets) as b(definition_id uuid, tenant_id uuid, rate jsonb)
            on b.definition_id in (r.definition_id, all_of) and b.tenant_id in (r.tenant_id, all_of)
        group by b.definition_id, b.tenant_id, b.rate) s
    where k.definition_id = s.definition_id and k.tenant_id = s.tenant_id and k.limit_key = all_of;
    return kept;
end
$$;

CREATE FUNCTION fairlead.start_alone(job uuid) RETURNS timestamp with time zone
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    all_of constant uuid := '00000000-0000-0000-0000-000000000000';
    about record;
    room record;
    moment timestamptz;
    running bigint;
begin
    select j.tenant_id, j.definition_id, j.limit_key, j.payload, d.by_key, s.rate as system_rate into about
    from fairlead.job_records j, fairlead.job_definitions d, fairlead.system s
    where j.id = start_alone.job and d.id = j.definition_id;
    select r.* into room
    from fairlead.rate_room(array[about.tenant_id], array[about.definition_id], about.system_rate, '{}', null) r;
    if room.missed <> '{}' then
        return null;
    end if;
    moment := clock_timestamp();
    -- as in spend_rates: a job that costs more than the bucket holds starts when the bucket is full
    update fairlead.rate_buckets k set needed = fairlead.cost_of(b.rate ->> 'cost', about.payload)
    from jsonb_to_recordset(room.buckets) as b(definition_id uuid, tenant_id uuid, rate jsonb)
    where k.definition_id = b.definition_id and k.tenant_id = b.tenant_id and k.limit_key = all_of
        and fairlead.tokens_in(k.tokens, k.counted_at, b.rate, moment) + 1e-9
            < least(fairlead.cost_of(b.rate ->> 'cost', about.payload), (b.rate ->> 'burst')::float8);
    if found then
        return null;
    end if;
    if about.limit_key is not null and about.by_key is not null then
        insert into fairlead.key_locks (definition_id, tenant_id, limit_key)
        select about.definition_id, about.tenant_id, about.limit_key
        where pg_try_advisory_xact_lock(
            fairlead.key_lock_of(about.definition_id, about.tenant_id, about.limit_key))
        on conflict do nothing;
        perform from fairlead.key_locks k
        where k.definition_id = about.definition_id and k.tenant_id = about.tenant_id and k.limit_key = about.limit_key
        for update skip locked;
        if not found then
            return null;
        end if;
        select count(*) into running from fairlead.leases l
        where l.definition_id = about.definition_id and l.tenant_id = about.tenant_id and l.limit_key = about.limit_key;
        if running >= (about.by_key ->> 'max_running')::integer then
            return null;
        end if;
        if (about.by_key -> 'fifo')::boolean and (exists (
                select from fairlead.ready r
                where r.definition_id = about.definition_id and r.tenant_id = about.tenant_id
                    and r.limit_key = about.limit_key and r.job_id < start_alone.job)
            or exists (
                select from fairlead.later l
                where l.definition_id = about.definition_id and l.tenant_id = about.tenant_id
                    and l.limit_key = about.limit_key and l.job_id < start_alone.job)) then
            return null;
        end if;
        -- later than the ends that were counted
        moment := clock_timestamp();
        if jsonb_typeof(about.by_key -> 'rate') = 'object' then
            insert into fairlead.rate_buckets as b (definition_id, tenant_id, limit_key, tokens, counted_at)
            values (about.definition_id, about.tenant_id, about.limit_key,
                (about.by_key -> 'rate' ->> 'burst')::float8 - 1, moment)
            on conflict (definition_id, tenant_id, limit_key) do update
            set tokens = fairlead.tokens_in(b.tokens, b.counted_at, about.by_key -> 'rate', moment) - 1, counted_at = moment
            where fairlead.tokens_in(b.tokens, b.counted_at, about.by_key -> 'rate', moment) + 1e-9 >= 1;
            if not found then
                return null;
            end if;
        end if;
    end if;
    update fairlead.rate_buckets k
    set tokens = fairlead.tokens_in(k.tokens, k.counted_at, b.rate, moment)
            - fairlead.cost_of(b.rate ->> 'cost', about.payload), counted_at = moment, needed = 1
    from jsonb_to_recordset(room.buckets) as b(definition_id uuid, tenant_id uuid, rate jsonb)
    where k.definition_id = b.definition_id and k.tenant_id = b.tenant_id and k.limit_key = all_of;
    return moment;
end
$$;

CREATE FUNCTION fairlead.step_jobs_fit(new fairlead.step_job[], settings jsonb) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    of_tenant record;
    of_run record;
begin
    for of_tenant in select n.tenant_id, count(*) as jobs from unnest(step_jobs_fit.new) n group by n.tenant_id loop
        if fairlead.room_of(of_tenant.tenant_id, of_tenant.jobs, step_jobs_fit.settings) is not null then
            return false;
        end if;
    end loop;
    for of_run in
        select coalesce(r.root_run_id, r.id) as root, sum(n.jobs)::bigint as jobs
        from (select n.run_id, count(*) as jobs from unnest(step_jobs_fit.new) n group by n.run_id) n
        cross join lateral (
            select r.root_run_id, r.id from fairlead.workflow_runs r where r.id = n.run_id limit 1) r
        group by 1
    loop
        if fairlead.room_in_run(of_run.root, of_run.jobs, step_jobs_fit.settings) is not null then
            return false;
        end if;
    end loop;
    return true;
end
$$;

CREATE FUNCTION fairlead.swap_token(token uuid) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select translate(token::text, '0123456789abcdef', 'fedcba9876543210')::uuid
$$;

CREATE FUNCTION fairlead.target_of(tenant_id uuid, definition_id uuid, payload jsonb, host_id uuid, resource_id uuid, OUT target_host uuid, OUT target_resource uuid, OUT refusal text) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $$
#variable_conflict use_column
declare
    about record;
    named text;
begin
    select d.resource_pointer, d.kind into about from fairlead.job_definitions d where d.id = target_of.definition_id;
    target_resource := target_of.resource_id;
    if target_resource is null and about.resource_pointer is not null then
        named := target_of.payload #>> fairlead.path_of_pointer(about.resource_pointer);
        select r.id into target_resource from fairlead.resources r
        where r.tenant_id = target_of.tenant_id and r.id = fairlead.as_id(named);
        if target_resource is null then
            -- by name, if only one resource has it
            select min(r.id::text)::uuid into target_resource from fairlead.resources r
            where r.tenant_id = target_of.tenant_id and r.name = named having count(*) = 1;
        end if;
        if target_resource is null then
            refusal := 'resource_unknown';
            return;
        end if;
    end if;
    if target_resource is not null then
        select r.host_id into target_host from fairlead.resources r
        where r.id = target_resource and r.tenant_id = target_of.tenant_id;
        refusal := case
            when target_host is null then 'resource_unknown'
            when target_of.host_id <> target_host then 'resource_elsewhere'
        end;
    elsif target_of.host_id is not null then
        select h.id into target_host from fairlead.hosts h
        where h.id = target_of.host_id and h.tenant_id = target_of.tenant_id;
        refusal := case when target_host is null then 'host_unknown' end;
    elsif about.kind = 'host' then
        refusal := 'host_required';
    end if;
end
$$;

CREATE FUNCTION fairlead.tell_ends(ends fairlead.job_end[]) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    heard uuid[];
begin
    -- begin_wait locks the record of the child before it looks at its status: one of the two sees the other
    insert into fairlead.ended_children (job_id, tenant_id)
    select e.id, e.tenant_id from unnest(tell_ends.ends) e
    where e.status > 'running' and exists (
            select from fairlead.job_steps s where s.child_id = e.id and s.status = 'waiting')
        or e.status = 'canceled' and exists (
            select from fairlead.job_steps s where s.job_id = e.id and s.child_id is not null and s.status = 'waiting')
    on conflict do nothing;
    if found then
        perform fairlead.notify_in_transaction('step');
    end if;

    with kinds as materialized (
        select distinct e.tenant_id, e.status from unnest(tell_ends.ends) e where e.status > 'running'
    ), listening as materialized (
        select k.tenant_id, k.status from kinds k cross join lateral (
            select from fairlead.job_triggers g
            where g.tenant_id = k.tenant_id and g.event_name = 'job.' || k.status
                and g.event_name like 'job.%' and g.is_enabled and g.deleted_at is null
            limit 1) one
    )
    select array_agg(e.id) into heard
    from listening l cross join lateral (
        select e.id from unnest(tell_ends.ends) e
        where e.tenant_id = l.tenant_id and e.status = l.status offset 0) e;
    if heard is null then
        return false;
    end if;
    with ended as materialized (
        select j.* from unnest(heard) as o(id) cross join lateral (
            select j.id, j.tenant_id, j.definition_id, j.status, j.attempt_count, j.correlation_id, j.parent_id,
                j.workflow_run_id, j.queued_at, j.started_at, j.finished_at, j.last_error
            from fairlead.jobs j where j.id = o.id limit 1) j
    ), told as (
        insert into fairlead.events (id, tenant_id, name, data, correlation_id, occurred_at, created_by, caused_by, lineage)
        select fairlead.uuid7(), e.tenant_id, 'job.' || e.status,
            -- no payload and no output: they may hold secrets
            jsonb_build_object(
                'job_id', e.id, 'definition_key', d.key, 'status', e.status, 'attempt_no', e.attempt_count,
                'correlation_id', e.correlation_id, 'parent_id', e.parent_id, 'workflow_run_id', e.workflow_run_id,
                'queued_at', e.queued_at, 'started_at', e.started_at, 'finished_at', e.finished_at,
                -- the duration of the last attempt if it has ended, else the time until now
                'duration_ms', coalesce((
                    select a.duration_ms from fairlead.attempts a
                    where a.job_id = e.id and a.attempt_no = e.attempt_count limit 1),
                    (date_part('epoch', e.finished_at - e.started_at) * 1000)::bigint),
                'last_error', case when e.status <> 'succeeded' then split_part(e.last_error, E'\n', 1) end),
            e.correlation_id, e.finished_at, 'system', e.id, fairlead.lineage_of(e.id)
        from ended e join fairlead.job_definitions d on d.id = e.definition_id
        where not fairlead.follows_an_end(e.id)
        returning id, tenant_id
    )
    insert into fairlead.events_waiting (event_id, tenant_id) select id, tenant_id from told;
    return found;
end
$$;

CREATE FUNCTION fairlead.tell_run_end(run uuid, failed_step text, last_error text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    with told as (
        insert into fairlead.events (id, tenant_id, name, data, correlation_id, occurred_at, created_by, caused_by, lineage)
        select fairlead.uuid7(), r.tenant_id, 'workflow.' || r.status,
            jsonb_build_object(
                'run_id', r.id, 'workflow', r.key, 'version', r.version, 'status', r.status,
                'correlation_id', r.correlation_id, 'started_by_job', r.started_by_job,
                'started_at', r.created_at, 'finished_at', r.finished_at,
                'duration_ms', (date_part('epoch', r.finished_at - r.created_at) * 1000)::bigint,
                'failed_step', tell_run_end.failed_step, 'last_error', split_part(tell_run_end.last_error, E'\n', 1)),
            r.correlation_id, r.finished_at, 'system', r.started_by_job, fairlead.lineage_of(r.started_by_job)
        from fairlead.workflow_runs r
        where r.id = tell_run_end.run
            and exists (
                select from fairlead.job_triggers g
                where g.tenant_id = r.tenant_id and g.event_name = 'workflow.' || r.status
                    and g.is_enabled and g.deleted_at is null)
            and not fairlead.listens_to_ends(r.created_by) and not fairlead.follows_an_end(r.started_by_job)
        returning id, tenant_id
    )
    insert into fairlead.events_waiting (event_id, tenant_id) select id, tenant_id from told;
    return found;
end
$$;

CREATE FUNCTION fairlead.tenant_of_session() RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    select nullif(current_setting('fairlead.tenant_id', true), '')::uuid
$$;

CREATE FUNCTION fairlead.token_state(revoked_at timestamp with time zone, expires_at timestamp with time zone, maker uuid, token_role text) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO ''
    AS $$
    select case
        when revoked_at is not null then 'revoked'
        when expires_at <= clock_timestamp() then 'expired'
        when fairlead.is_backed(maker, token_role) then 'valid'
        when exists (select from fairlead.users u where u.id = maker and u.disabled_at is null) then 'maker_lacks_role'
        else 'maker_disabled' end
$$;

CREATE FUNCTION fairlead.tokens_in(tokens double precision, counted_at timestamp with time zone, rate jsonb, moment timestamp with time zone) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select least((rate ->> 'burst')::float8, tokens + greatest(0, date_part('epoch', moment - counted_at))
        * (rate ->> 'limit')::float8 / (rate ->> 'per_seconds')::float8)
$$;

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

CREATE FUNCTION fairlead.wake_functions(jobs uuid[]) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    woken bigint := 0;
    found_now bigint;
begin
    loop
        with found as materialized (
            select l.spot from unnest(wake_functions.jobs) as o(id)
            cross join lateral (
                select j.tenant_id from fairlead.job_records j where j.id = o.id limit 1) j
            cross join lateral (
                select l.ctid as spot from fairlead.later l
                where l.tenant_id = j.tenant_id and l.job_id = o.id and l.waits and l.due_at > moment
                limit 1 for update) l
        ), taken as (
            delete from fairlead.later where ctid = any(array(select spot from found))
            returning job_id, tenant_id, definition_id, host_id, priority, alone, limit_key
        ), due as (
            update fairlead.job_records j set scheduled_for = moment from taken t where j.id = t.job_id
        ), ready as (
            insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
            select job_id, tenant_id, definition_id, host_id, priority, moment, limit_key from taken where not alone
        ), suspects as (
            insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, alone, limit_key)
            select job_id, tenant_id, definition_id, host_id, priority, moment, true, limit_key from taken where alone
        )
        select count(*) into found_now from taken;
        woken := woken + found_now;
        -- an edit that this waited for has put the job into another row
        exit when not exists (
            select from unnest(wake_functions.jobs) as o(id)
            cross join lateral (
                select j.tenant_id from fairlead.job_records j where j.id = o.id limit 1) j
            cross join lateral (
                select from fairlead.later l
                where l.tenant_id = j.tenant_id and l.job_id = o.id and l.waits and l.due_at > moment limit 1) l);
    end loop;
    return woken;
end
$$;

CREATE TABLE fairlead.account_links (
    secret_hash bytea NOT NULL,
    user_id uuid NOT NULL,
    tenant_id uuid,
    purpose text NOT NULL,
    created_by text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    user_updated_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT account_links_purpose CHECK ((purpose = ANY (ARRAY['invitation'::text, 'reset'::text])))
);

ALTER TABLE ONLY fairlead.account_links FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.account_mails (
    job_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE fairlead.active_keys (
    tenant_id uuid NOT NULL,
    key_hash bytea NOT NULL,
    job_id uuid NOT NULL,
    unique_until timestamp with time zone
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.active_keys FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.allotment_grants (
    definition_id uuid NOT NULL,
    cell_id uuid NOT NULL,
    number integer NOT NULL,
    CONSTRAINT allotment_grants_number CHECK ((number >= 0))
);

CREATE TABLE fairlead.allotments (
    definition_id uuid NOT NULL,
    number integer NOT NULL,
    round bigint NOT NULL,
    CONSTRAINT allotments_number CHECK ((number >= 0))
);

CREATE UNLOGGED TABLE fairlead.allowances (
    key text NOT NULL,
    until timestamp with time zone NOT NULL,
    granted integer NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE fairlead.approvals (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    job_id uuid NOT NULL,
    branch text NOT NULL,
    "position" integer NOT NULL,
    name text NOT NULL,
    title text NOT NULL,
    description text,
    form jsonb,
    roles text[] NOT NULL,
    status text DEFAULT 'open'::text NOT NULL,
    requested_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    due_at timestamp with time zone,
    escalate text,
    escalate_at timestamp with time zone,
    escalated_at timestamp with time zone,
    answered_at timestamp with time zone,
    answered_by text,
    comment text,
    answer jsonb,
    CONSTRAINT approvals_status CHECK ((status = ANY (ARRAY['open'::text, 'approved'::text, 'rejected'::text, 'expired'::text])))
)
WITH (fillfactor='80');

ALTER TABLE ONLY fairlead.approvals FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.job_attempts (
    job_id uuid NOT NULL,
    attempt_no integer NOT NULL,
    tenant_id uuid NOT NULL,
    token uuid NOT NULL,
    worker_id text NOT NULL,
    pid integer,
    status text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    queue_ms bigint,
    duration_ms bigint,
    exit_code integer,
    signal integer,
    cost_cents bigint DEFAULT 0 NOT NULL,
    error_text text,
    stdout_tail text,
    stderr_tail text,
    CONSTRAINT attempts_number CHECK ((attempt_no > 0)),
    CONSTRAINT attempts_status CHECK ((status = ANY (ARRAY['succeeded'::text, 'failed'::text, 'timeout'::text, 'canceled'::text, 'lost'::text, 'released'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.job_attempts FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.job_records (
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
    trace text,
    workflow_step integer,
    workflow_item integer,
    timeout_seconds integer,
    secret_paths text[],
    suspected integer DEFAULT 0 NOT NULL,
    accused boolean DEFAULT false NOT NULL,
    root_run_id uuid,
    success_token uuid,
    limit_key uuid,
    tags text[],
    expires_at timestamp with time zone
)
WITH (fillfactor='45', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.job_records FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.leases (
    job_id uuid NOT NULL,
    attempt_no integer NOT NULL,
    token uuid NOT NULL,
    worker_id text NOT NULL,
    tenant_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    host_id uuid,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    queue_ms bigint,
    probation_until timestamp with time zone,
    progress jsonb,
    limit_key uuid
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='5000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.leases FORCE ROW LEVEL SECURITY;

CREATE VIEW fairlead.attempts WITH (security_invoker='true') AS
 SELECT fairlead.attempt_id(a.job_id, a.attempt_no) AS id,
    a.job_id,
    a.attempt_no,
    a.tenant_id,
    a.token,
    a.worker_id,
    a.pid,
    a.status,
    a.started_at,
    a.finished_at,
    a.queue_ms,
    a.duration_ms,
    a.exit_code,
    a.signal,
    a.cost_cents,
    a.error_text,
    a.stdout_tail,
    a.stderr_tail
   FROM fairlead.job_attempts a
UNION ALL
 SELECT fairlead.attempt_id(l.job_id, l.attempt_no) AS id,
    l.job_id,
    l.attempt_no,
    l.tenant_id,
    l.token,
    l.worker_id,
    NULL::integer AS pid,
    'running'::text AS status,
    l.started_at,
    NULL::timestamp with time zone AS finished_at,
    l.queue_ms,
    NULL::bigint AS duration_ms,
    NULL::integer AS exit_code,
    NULL::integer AS signal,
    0 AS cost_cents,
    NULL::text AS error_text,
    NULL::text AS stdout_tail,
    NULL::text AS stderr_tail
   FROM fairlead.leases l
UNION ALL
 SELECT fairlead.attempt_id(r.id, r.attempt_count) AS id,
    r.id AS job_id,
    r.attempt_count AS attempt_no,
    r.tenant_id,
    r.success_token AS token,
    r.claimed_by_worker AS worker_id,
    NULL::integer AS pid,
    'succeeded'::text AS status,
    r.started_at,
    r.finished_at,
    (GREATEST((0)::double precision, (date_part('epoch'::text, (r.started_at - GREATEST(r.scheduled_for, r.queued_at))) * (1000)::double precision)))::bigint AS queue_ms,
    (GREATEST((0)::double precision, (date_part('epoch'::text, (r.finished_at - r.started_at)) * (1000)::double precision)))::bigint AS duration_ms,
    NULL::integer AS exit_code,
    NULL::integer AS signal,
    0 AS cost_cents,
    NULL::text AS error_text,
    NULL::text AS stdout_tail,
    NULL::text AS stderr_tail
   FROM fairlead.job_records r
  WHERE (r.success_token IS NOT NULL);

CREATE TABLE fairlead.audit_log (
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    tenant_id uuid,
    actor text NOT NULL,
    action text NOT NULL,
    resource_type text NOT NULL,
    resource_id text,
    jobs uuid[],
    attempts integer[],
    details jsonb DEFAULT '{}'::jsonb NOT NULL,
    ip inet DEFAULT fairlead.ip_of_session(),
    principal_id uuid DEFAULT fairlead.principal_of_session()
)
PARTITION BY RANGE (at);
ALTER TABLE ONLY fairlead.audit_log ALTER COLUMN jobs SET STORAGE EXTERNAL;
ALTER TABLE ONLY fairlead.audit_log ALTER COLUMN attempts SET STORAGE MAIN;

ALTER TABLE ONLY fairlead.audit_log FORCE ROW LEVEL SECURITY;

CREATE VIEW fairlead.audit_entries WITH (security_invoker='true') AS
 SELECT a.at,
    a.tenant_id,
    a.actor,
    a.action,
    a.resource_type,
    COALESCE((job.id)::text, a.resource_id) AS resource_id,
        CASE
            WHEN (job.id IS NULL) THEN a.details
            ELSE (a.details || jsonb_build_object('attempt_no', job.attempt_no))
        END AS details,
    a.ip,
    a.principal_id,
    (a.tableoid)::bigint AS part,
    a.ctid AS spot,
    COALESCE(job.n, (0)::bigint) AS n
   FROM (fairlead.audit_log a
     LEFT JOIN LATERAL UNNEST(a.jobs, a.attempts) WITH ORDINALITY job(id, attempt_no, n) ON (true));

CREATE TABLE fairlead.audit_log_rest (
    at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT audit_log_at_not_null NOT NULL,
    tenant_id uuid,
    actor text CONSTRAINT audit_log_actor_not_null NOT NULL,
    action text CONSTRAINT audit_log_action_not_null NOT NULL,
    resource_type text CONSTRAINT audit_log_resource_type_not_null NOT NULL,
    resource_id text,
    jobs uuid[],
    attempts integer[],
    details jsonb DEFAULT '{}'::jsonb CONSTRAINT audit_log_details_not_null NOT NULL,
    ip inet DEFAULT fairlead.ip_of_session(),
    principal_id uuid DEFAULT fairlead.principal_of_session()
);
ALTER TABLE ONLY fairlead.audit_log_rest ALTER COLUMN jobs SET STORAGE EXTERNAL;
ALTER TABLE ONLY fairlead.audit_log_rest ALTER COLUMN attempts SET STORAGE MAIN;

CREATE TABLE fairlead.cell_rounds (
    only_row boolean DEFAULT true NOT NULL,
    round bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    CONSTRAINT cell_rounds_only_row_check CHECK (only_row)
);

CREATE TABLE fairlead.cells (
    name text NOT NULL,
    cell_id uuid NOT NULL,
    url text,
    schema_name text NOT NULL,
    is_citus boolean DEFAULT false NOT NULL,
    is_draining boolean DEFAULT false NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT cells_name CHECK ((name ~ '^[a-z0-9][a-z0-9-]{0,62}$'::text))
);

CREATE TABLE fairlead.checks (
    name text NOT NULL,
    verdict text NOT NULL,
    value double precision,
    detail text NOT NULL,
    advice text DEFAULT ''::text NOT NULL,
    checked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT checks_verdict CHECK ((verdict = ANY (ARRAY['ok'::text, 'warn'::text, 'fail'::text])))
)
WITH (fillfactor='50');

CREATE TABLE fairlead.count_levels (
    tenant_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    queued bigint DEFAULT 0 NOT NULL,
    running bigint DEFAULT 0 NOT NULL,
    succeeded bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    dead_letter bigint DEFAULT 0 NOT NULL,
    canceled bigint DEFAULT 0 NOT NULL,
    runs bigint DEFAULT 0 NOT NULL,
    runs_succeeded bigint DEFAULT 0 NOT NULL,
    runs_failed bigint DEFAULT 0 NOT NULL,
    runs_dead_letter bigint DEFAULT 0 NOT NULL,
    runs_retried bigint DEFAULT 0 NOT NULL,
    runs_lost bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.count_levels FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.counts (
    tenant_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    minute timestamp with time zone NOT NULL,
    queued bigint DEFAULT 0 NOT NULL,
    running bigint DEFAULT 0 NOT NULL,
    succeeded bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    dead_letter bigint DEFAULT 0 NOT NULL,
    canceled bigint DEFAULT 0 NOT NULL,
    runs integer,
    retried integer,
    run_ms bigint,
    queue_ms bigint,
    cost_cents bigint,
    lost integer,
    leveled boolean DEFAULT false NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='10000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.counts FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.debounces (
    tenant_id uuid NOT NULL,
    key_hash bytea NOT NULL,
    job_id uuid NOT NULL,
    first_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.debounces FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.dedupe_windows (
    tenant_id uuid NOT NULL,
    hash bytea NOT NULL,
    job_id uuid NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY fairlead.dedupe_windows FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.definition_versions (
    definition_id uuid NOT NULL,
    version integer NOT NULL,
    spec jsonb NOT NULL,
    changed_by text NOT NULL,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE fairlead.deliveries (
    job_id uuid NOT NULL,
    attempt_no integer NOT NULL,
    token uuid NOT NULL,
    tenant_id uuid NOT NULL,
    host_id uuid NOT NULL
);

ALTER TABLE ONLY fairlead.deliveries FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.duties (
    name text NOT NULL,
    due_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    place text,
    done_at timestamp with time zone,
    failures integer DEFAULT 0 NOT NULL,
    last_error text
)
WITH (fillfactor='50');

CREATE TABLE fairlead.ended_children (
    job_id uuid NOT NULL,
    tenant_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.ended_children FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.ended_steps (
    job_id uuid NOT NULL,
    tenant_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.ended_steps FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.enrolment_codes (
    code_hash bytea NOT NULL,
    tenant_id uuid NOT NULL,
    host_id uuid NOT NULL,
    created_by text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone
);

ALTER TABLE ONLY fairlead.enrolment_codes FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.error_group_changes (
    group_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    failed bigint NOT NULL,
    dead_letter bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.error_group_changes FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.error_group_hours (
    group_id uuid NOT NULL,
    hour timestamp with time zone NOT NULL,
    tenant_id uuid NOT NULL,
    failures bigint NOT NULL
)
WITH (fillfactor='70');

ALTER TABLE ONLY fairlead.error_group_hours FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.error_group_jobs (
    job_id uuid NOT NULL,
    group_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    status fairlead.job_status NOT NULL,
    failed_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.error_group_jobs FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.error_groups (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    tenant_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    fingerprint bytea NOT NULL,
    pattern text NOT NULL,
    sample text NOT NULL,
    first_seen timestamp with time zone NOT NULL,
    last_seen timestamp with time zone NOT NULL,
    first_version integer NOT NULL,
    last_version integer NOT NULL,
    last_job_id uuid NOT NULL,
    seen bigint NOT NULL,
    failed bigint NOT NULL,
    dead_letter bigint NOT NULL,
    muted_at timestamp with time zone,
    muted_by text,
    muted_until timestamp with time zone,
    muted_version integer,
    mute_note text,
    discarded_at timestamp with time zone,
    discarded_by text
)
WITH (fillfactor='70');

ALTER TABLE ONLY fairlead.error_groups FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.events (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    tenant_id uuid NOT NULL,
    name text NOT NULL,
    data jsonb NOT NULL,
    correlation_id text,
    occurred_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    dispatched_at timestamp with time zone,
    replay_of uuid,
    only_trigger_id uuid,
    secret_paths text[] DEFAULT '{}'::text[] NOT NULL,
    created_by text,
    caused_by uuid,
    lineage uuid[] DEFAULT '{}'::uuid[] NOT NULL
)
WITH (fillfactor='85');

ALTER TABLE ONLY fairlead.events FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.events_waiting (
    event_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    due_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    data_bytes integer DEFAULT 0 NOT NULL,
    progress jsonb
);

ALTER TABLE ONLY fairlead.events_waiting FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.expiries (
    expires_at timestamp with time zone NOT NULL,
    job_id uuid NOT NULL,
    tenant_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.expiries FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.failures (
    job_id uuid NOT NULL,
    attempt_no integer NOT NULL,
    tenant_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.failures FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.function_sources (
    name text NOT NULL,
    checksum text NOT NULL
);

CREATE TABLE fairlead.handovers (
    job_id uuid NOT NULL,
    attempt_no integer NOT NULL,
    token uuid NOT NULL,
    engine text NOT NULL,
    queue text NOT NULL,
    handed_over_at timestamp with time zone,
    stopped_at timestamp with time zone
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='5000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE fairlead.hook_deliveries (
    hook_id uuid NOT NULL,
    key bytea NOT NULL,
    tenant_id uuid NOT NULL,
    event_id uuid NOT NULL,
    received_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY fairlead.hook_deliveries FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.hook_secrets (
    hook_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    secret text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    valid_until timestamp with time zone
);

ALTER TABLE ONLY fairlead.hook_secrets FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.hooks (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    tenant_id uuid NOT NULL,
    name text NOT NULL,
    scheme text NOT NULL,
    event_name text NOT NULL,
    unique_by text DEFAULT 'id'::text NOT NULL,
    tolerance_seconds integer DEFAULT 300 NOT NULL,
    is_enabled boolean DEFAULT true NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    last_refused_at timestamp with time zone,
    last_refusal text,
    CONSTRAINT hooks_event_name CHECK (((length(event_name) >= 1) AND (length(event_name) <= 255))),
    CONSTRAINT hooks_name CHECK ((name ~ '^[a-z][a-z0-9_-]{0,62}$'::text)),
    CONSTRAINT hooks_scheme CHECK ((scheme = ANY (ARRAY['standard'::text, 'github'::text, 'stripe'::text, 'slack'::text]))),
    CONSTRAINT hooks_tolerance CHECK (((tolerance_seconds >= 1) AND (tolerance_seconds <= 3600))),
    CONSTRAINT hooks_unique_by CHECK ((unique_by = ANY (ARRAY['id'::text, 'body'::text])))
)
WITH (fillfactor='50');

ALTER TABLE ONLY fairlead.hooks FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.hosts (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    tenant_id uuid NOT NULL,
    name text NOT NULL,
    max_running integer DEFAULT 1 NOT NULL,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    draining boolean DEFAULT false NOT NULL,
    paused_at timestamp with time zone,
    paused_by text,
    pause_note text,
    last_seen_at timestamp with time zone,
    agent_version text,
    session_id uuid,
    session_at timestamp with time zone,
    created_by text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT hosts_max_running CHECK ((max_running > 0))
);

ALTER TABLE ONLY fairlead.hosts FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.idempotency_keys (
    scope_id uuid NOT NULL,
    key text NOT NULL,
    body_hash bytea NOT NULL,
    status_code integer,
    answer jsonb,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY fairlead.idempotency_keys FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.identities (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    user_id uuid NOT NULL,
    tenant_id uuid,
    issuer text NOT NULL,
    subject text NOT NULL,
    provider text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    last_sign_in_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY fairlead.identities FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.job_definitions (
    id uuid NOT NULL,
    key text NOT NULL,
    version integer DEFAULT 1 NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    kind text DEFAULT 'function'::text NOT NULL,
    arg_schema jsonb DEFAULT '{}'::jsonb NOT NULL,
    secret_paths text[] DEFAULT '{}'::text[] NOT NULL,
    only_tenants uuid[],
    timeout_seconds integer DEFAULT 3600 NOT NULL,
    max_attempts integer DEFAULT 3 NOT NULL,
    backoff jsonb DEFAULT '{"factor": 2, "jitter": 0.1, "cap_seconds": 3600, "base_seconds": 10}'::jsonb NOT NULL,
    max_running integer,
    max_running_per_tenant integer,
    rate jsonb,
    rate_per_tenant jsonb,
    by_key jsonb,
    slots integer DEFAULT 1 NOT NULL,
    requires jsonb,
    prefers jsonb,
    default_priority integer DEFAULT 100 NOT NULL,
    resource_pointer text,
    audit_action text DEFAULT 'JOB_SUCCEEDED'::text,
    retention_days integer,
    is_active boolean DEFAULT true NOT NULL,
    engine text,
    queue text,
    paused_at timestamp with time zone,
    paused_by text,
    pause_note text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT definitions_arg_schema CHECK ((jsonb_typeof(arg_schema) = ANY (ARRAY['object'::text, 'boolean'::text]))),
    CONSTRAINT definitions_backoff CHECK (((jsonb_typeof(backoff) = 'object'::text) AND (backoff ?& ARRAY['base_seconds'::text, 'factor'::text, 'cap_seconds'::text, 'jitter'::text]))),
    CONSTRAINT definitions_engine CHECK (
CASE kind
    WHEN 'delivered'::text THEN (engine IS NOT NULL)
    WHEN 'bullmq'::text THEN true
    ELSE ((engine IS NULL) AND (queue IS NULL))
END),
    CONSTRAINT definitions_key CHECK ((key ~ '^[A-Za-z][A-Za-z0-9._-]{0,127}$'::text)),
    CONSTRAINT definitions_kind CHECK ((kind = ANY (ARRAY['function'::text, 'command'::text, 'host'::text, 'workflow'::text, 'delivered'::text, 'bullmq'::text]))),
    CONSTRAINT definitions_max_attempts CHECK (((max_attempts >= 1) AND (max_attempts <= 1000))),
    CONSTRAINT definitions_max_running CHECK ((max_running > 0)),
    CONSTRAINT definitions_max_running_per_tenant CHECK ((max_running_per_tenant > 0)),
    CONSTRAINT definitions_retention CHECK ((retention_days > 0)),
    CONSTRAINT definitions_slots CHECK (((slots >= 1) AND (slots <= 10000))),
    CONSTRAINT definitions_timeout CHECK (((timeout_seconds >= 1) AND (timeout_seconds <= 2592000)))
);

ALTER TABLE ONLY fairlead.job_definitions FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.job_signals (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    job_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    name text NOT NULL,
    data jsonb,
    sent_by text NOT NULL,
    sent_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    taken_at timestamp with time zone
);

ALTER TABLE ONLY fairlead.job_signals FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.job_tags (
    tenant_id uuid NOT NULL,
    tag text NOT NULL,
    job_id uuid NOT NULL
);

ALTER TABLE ONLY fairlead.job_tags FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.job_triggers (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    tenant_id uuid NOT NULL,
    label text NOT NULL,
    is_enabled boolean DEFAULT true NOT NULL,
    trigger_type text NOT NULL,
    event_name text,
    filter jsonb DEFAULT '{}'::jsonb NOT NULL,
    cron_expr text,
    timezone text,
    every_seconds integer,
    start_at timestamp with time zone,
    end_at timestamp with time zone,
    jitter_seconds integer,
    definition_id uuid NOT NULL,
    payload_template jsonb DEFAULT '{}'::jsonb NOT NULL,
    job_options jsonb DEFAULT '{}'::jsonb NOT NULL,
    dedupe_window_seconds integer DEFAULT 0 NOT NULL,
    catch_up text DEFAULT 'skip'::text NOT NULL,
    overlap text DEFAULT 'allow'::text NOT NULL,
    owner text,
    name text,
    next_fire_at timestamp with time zone,
    next_delay interval DEFAULT '00:00:00'::interval NOT NULL,
    last_fired_at timestamp with time zone,
    created_by text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deleted_at timestamp with time zone,
    CONSTRAINT job_triggers_catch_up CHECK ((catch_up = ANY (ARRAY['skip'::text, 'one'::text, 'all'::text]))),
    CONSTRAINT job_triggers_end CHECK ((end_at > start_at)),
    CONSTRAINT job_triggers_every CHECK (((every_seconds >= 0) AND (every_seconds <= 31622400))),
    CONSTRAINT job_triggers_form CHECK (
CASE trigger_type
    WHEN 'event'::text THEN ((event_name IS NOT NULL) AND (cron_expr IS NULL) AND (timezone IS NULL) AND (every_seconds IS NULL) AND (start_at IS NULL) AND (end_at IS NULL) AND (jitter_seconds IS NULL) AND (next_fire_at IS NULL))
    WHEN 'schedule'::text THEN ((event_name IS NULL) AND (filter = '{}'::jsonb) AND (((cron_expr IS NOT NULL) AND (every_seconds IS NULL) AND (start_at IS NULL)) OR ((cron_expr IS NULL) AND (timezone IS NULL) AND (every_seconds IS NOT NULL) AND (start_at IS NOT NULL))))
    ELSE false
END),
    CONSTRAINT job_triggers_idle CHECK (((next_fire_at IS NULL) OR (is_enabled AND (deleted_at IS NULL)))),
    CONSTRAINT job_triggers_jitter CHECK (((jitter_seconds >= 0) AND (jitter_seconds <= 86400))),
    CONSTRAINT job_triggers_overlap CHECK ((overlap = ANY (ARRAY['skip'::text, 'allow'::text]))),
    CONSTRAINT job_triggers_owner CHECK (((owner IS NULL) = (name IS NULL))),
    CONSTRAINT job_triggers_window CHECK (((dedupe_window_seconds >= 0) AND (dedupe_window_seconds <= 2592000)))
)
WITH (fillfactor='70');

ALTER TABLE ONLY fairlead.job_triggers FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.job_workers (
    worker_id text NOT NULL,
    tenant_id uuid,
    hostname text NOT NULL,
    version text DEFAULT ''::text NOT NULL,
    queues text[] DEFAULT '{}'::text[] NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    last_seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    running_count integer DEFAULT 0 NOT NULL,
    concurrency integer DEFAULT 0 NOT NULL,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    drain_requested_at timestamp with time zone,
    drain_requested_by text
)
WITH (fillfactor='50');

ALTER TABLE ONLY fairlead.job_workers FORCE ROW LEVEL SECURITY;

CREATE VIEW fairlead.jobs WITH (security_invoker='true') AS
 SELECT r.id,
    r.tenant_id,
    r.definition_id,
    r.parent_id,
    r.workflow_run_id,
    r.host_id,
    r.resource_id,
    r.priority,
    r.max_attempts,
    COALESCE(l.attempt_no, r.attempt_count) AS attempt_count,
    r.failure_count,
    r.lost_count,
    r.cost_cents,
    r.scheduled_for,
    r.queued_at,
    COALESCE(l.started_at, r.started_at) AS started_at,
    r.finished_at,
    r.cancel_requested_at,
    r.troubled,
        CASE
            WHEN (l.job_id IS NULL) THEN r.status
            ELSE 'running'::fairlead.job_status
        END AS status,
    r.source,
    r.source_ref,
    r.dedupe_key,
    r.correlation_id,
    r.created_by,
    COALESCE(l.worker_id, r.claimed_by_worker) AS claimed_by_worker,
    r.last_error,
    r.payload,
    r.output,
    r.error,
        CASE
            WHEN (l.job_id IS NULL) THEN r.progress
            ELSE l.progress
        END AS progress,
    r.trace,
    r.workflow_step,
    r.workflow_item,
    r.timeout_seconds,
    r.secret_paths,
    r.suspected,
    r.accused,
    r.root_run_id,
    l.expires_at AS lease_expires_at,
    r.tags,
    r.expires_at
   FROM (fairlead.job_records r
     LEFT JOIN fairlead.leases l ON ((l.job_id = r.id)));

CREATE TABLE fairlead.key_locks (
    definition_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    limit_key uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.key_locks FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.later (
    job_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    host_id uuid,
    priority integer NOT NULL,
    due_at timestamp with time zone NOT NULL,
    alone boolean DEFAULT false NOT NULL,
    held boolean DEFAULT false NOT NULL,
    waits boolean DEFAULT false NOT NULL,
    limit_key uuid
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='5000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.later FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.limit_locks (
    scope text NOT NULL,
    scope_id uuid NOT NULL,
    other_id uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    slot smallint DEFAULT 0 NOT NULL,
    worth integer DEFAULT 0 NOT NULL,
    CONSTRAINT limit_locks_scope CHECK ((scope = ANY (ARRAY['tenant'::text, 'definition'::text, 'definition_tenant'::text, 'host'::text])))
);

ALTER TABLE ONLY fairlead.limit_locks FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.live_tickets (
    ticket_hash bytea NOT NULL,
    tenant_id uuid,
    actor text NOT NULL,
    role text NOT NULL,
    token_id uuid,
    session_hash bytea,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT live_tickets_holder CHECK (((token_id IS NULL) <> (session_hash IS NULL)))
);

ALTER TABLE ONLY fairlead.live_tickets FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.log_chunks (
    job_id uuid NOT NULL,
    attempt_no integer NOT NULL,
    seq integer NOT NULL,
    tenant_id uuid NOT NULL,
    stream text DEFAULT 'stdout'::text NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    text text NOT NULL,
    CONSTRAINT log_chunks_stream CHECK ((stream = ANY (ARRAY['stdout'::text, 'stderr'::text, 'log'::text])))
);

ALTER TABLE ONLY fairlead.log_chunks FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.lost_workers (
    worker_id text NOT NULL,
    expired_at timestamp with time zone NOT NULL,
    blamed boolean NOT NULL,
    charged_job uuid,
    charged_attempt integer
);

CREATE TABLE fairlead.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    needs integer NOT NULL
);

CREATE TABLE fairlead.oidc_logouts (
    token_hash bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

CREATE TABLE fairlead.oidc_sessions (
    secret_hash bytea NOT NULL,
    tenant_id uuid,
    user_id uuid NOT NULL,
    issuer text NOT NULL,
    provider text NOT NULL,
    sid text
);

ALTER TABLE ONLY fairlead.oidc_sessions FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.oidc_sign_ins (
    state_hash bytea NOT NULL,
    browser_hash bytea NOT NULL,
    provider text NOT NULL,
    next_page text NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

CREATE UNLOGGED TABLE fairlead.openings (
    tenant_id uuid NOT NULL,
    quota text NOT NULL,
    server_id uuid NOT NULL,
    held integer NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.openings FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.pending_sign_ins (
    secret_hash bytea NOT NULL,
    user_id uuid NOT NULL,
    tenant_id uuid,
    user_updated_at timestamp with time zone NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY fairlead.pending_sign_ins FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.pulse (
    is_only boolean DEFAULT true NOT NULL,
    pulse_at timestamp with time zone,
    resumed_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    resumed_before timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    CONSTRAINT pulse_is_only_check CHECK (is_only)
);

CREATE TABLE fairlead.rate_buckets (
    definition_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    limit_key uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    tokens double precision DEFAULT 'Infinity'::double precision NOT NULL,
    counted_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    needed double precision DEFAULT 1 NOT NULL,
    wake_at timestamp with time zone
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.rate_buckets FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.ready (
    job_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    host_id uuid,
    priority integer NOT NULL,
    scheduled_for timestamp with time zone NOT NULL,
    limit_key uuid
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='5000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.ready FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.removed_jobs (
    tenant_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    jobs bigint NOT NULL
);

ALTER TABLE ONLY fairlead.removed_jobs FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.resources (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    tenant_id uuid NOT NULL,
    host_id uuid NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    created_by text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY fairlead.resources FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.run_jobs (
    root_run_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    jobs bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.run_jobs FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.saved_views (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    tenant_id uuid,
    page text NOT NULL,
    name text NOT NULL,
    query text NOT NULL,
    is_shared boolean NOT NULL,
    owner text NOT NULL,
    owner_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT saved_views_name CHECK (((name <> ''::text) AND (length(name) <= 80))),
    CONSTRAINT saved_views_query CHECK ((length(query) <= 2000))
);

ALTER TABLE ONLY fairlead.saved_views FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.second_factors (
    user_id uuid NOT NULL,
    tenant_id uuid,
    secret text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    confirmed_at timestamp with time zone,
    last_step bigint,
    recovery_hashes bytea[] DEFAULT '{}'::bytea[] NOT NULL
);

ALTER TABLE ONLY fairlead.second_factors FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.sessions (
    secret_hash bytea NOT NULL,
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    user_id uuid NOT NULL,
    tenant_id uuid,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    idle_ends_at timestamp with time zone,
    last_seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    revoked_at timestamp with time zone,
    ip inet DEFAULT fairlead.ip_of_session(),
    user_agent text,
    proof text DEFAULT 'password'::text NOT NULL,
    CONSTRAINT sessions_proof CHECK ((proof = ANY (ARRAY['password'::text, 'code'::text, 'provider'::text])))
);

ALTER TABLE ONLY fairlead.sessions FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.source_messages (
    source text NOT NULL,
    message_id text NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

CREATE TABLE fairlead.sources (
    name text NOT NULL,
    driver text NOT NULL,
    tenant_id uuid,
    event text NOT NULL,
    messages bigint DEFAULT 0 NOT NULL,
    duplicates bigint DEFAULT 0 NOT NULL,
    refused bigint DEFAULT 0 NOT NULL,
    last_message_at timestamp with time zone,
    last_refusal text,
    failing_since timestamp with time zone,
    last_error text,
    paused_at timestamp with time zone,
    paused_by text,
    pause_note text,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (fillfactor='50');

ALTER TABLE ONLY fairlead.sources FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.system (
    only_row boolean DEFAULT true NOT NULL,
    cell_id uuid DEFAULT gen_random_uuid() NOT NULL,
    is_allotted boolean DEFAULT false NOT NULL,
    online boolean DEFAULT true NOT NULL,
    rate jsonb,
    encrypted_since timestamp with time zone,
    note text,
    changed_by text,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT system_only_row_check CHECK (only_row)
);

CREATE TABLE fairlead.tenant_cells (
    tenant_id uuid NOT NULL,
    slug text NOT NULL,
    cell text NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY fairlead.tenant_cells FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.tenant_keys (
    id uuid NOT NULL,
    tenant_id uuid,
    wrapped bytea NOT NULL,
    master_key text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    superseded_at timestamp with time zone,
    retired_at timestamp with time zone,
    CONSTRAINT tenant_keys_order CHECK (((retired_at IS NULL) OR (superseded_at IS NOT NULL)))
);

ALTER TABLE ONLY fairlead.tenant_keys FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.tenant_moves (
    tenant_id uuid NOT NULL,
    slug text NOT NULL,
    source text NOT NULL,
    target text NOT NULL,
    step text DEFAULT 'gate'::text NOT NULL,
    epoch bigint NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    last_error text,
    started_by text NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT tenant_moves_step CHECK ((step = ANY (ARRAY['gate'::text, 'copy'::text, 'flip'::text, 'open'::text, 'remove'::text, 'reopen'::text])))
);

ALTER TABLE ONLY fairlead.tenant_moves FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.tenant_use (
    tenant_id uuid NOT NULL,
    roomy_until timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    stored_bytes bigint DEFAULT 0 NOT NULL,
    measured_at timestamp with time zone
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY fairlead.tenant_use FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.tenants (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    slug text NOT NULL,
    name text NOT NULL,
    timezone text DEFAULT 'UTC'::text NOT NULL,
    weight integer DEFAULT 1 NOT NULL,
    max_running integer,
    rate jsonb,
    quotas jsonb DEFAULT '{}'::jsonb NOT NULL,
    addresses text[],
    paused_at timestamp with time zone,
    paused_by text,
    pause_note text,
    placement text DEFAULT 'here'::text NOT NULL,
    moved_to text,
    epoch bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT tenants_addresses CHECK ((addresses <> '{}'::text[])),
    CONSTRAINT tenants_max_running CHECK ((max_running > 0)),
    CONSTRAINT tenants_moved_to CHECK (((moved_to IS NOT NULL) = (placement = 'moved'::text))),
    CONSTRAINT tenants_name CHECK (((name <> ''::text) AND (length(name) <= 200))),
    CONSTRAINT tenants_placement CHECK ((placement = ANY (ARRAY['here'::text, 'leaving'::text, 'arriving'::text, 'moved'::text]))),
    CONSTRAINT tenants_quotas CHECK ((jsonb_typeof(quotas) = 'object'::text)),
    CONSTRAINT tenants_slug CHECK (((slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'::text) AND (slug !~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'::text))),
    CONSTRAINT tenants_weight CHECK (((weight >= 1) AND (weight <= 1000)))
);

ALTER TABLE ONLY fairlead.tenants FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.tokens (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    tenant_id uuid,
    host_id uuid,
    user_id uuid,
    name text NOT NULL,
    role text NOT NULL,
    definitions text[],
    scopes text[],
    addresses text[],
    is_personal boolean DEFAULT false NOT NULL,
    replaced_by uuid,
    prefix text NOT NULL,
    secret_hash bytea NOT NULL,
    created_by text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    CONSTRAINT tokens_addresses CHECK ((addresses <> '{}'::text[])),
    CONSTRAINT tokens_definitions CHECK ((definitions <> '{}'::text[])),
    CONSTRAINT tokens_host CHECK (((role = 'agent'::text) = (host_id IS NOT NULL))),
    CONSTRAINT tokens_personal CHECK (((NOT is_personal) OR ((user_id IS NOT NULL) AND (expires_at IS NOT NULL)))),
    CONSTRAINT tokens_role CHECK ((role = ANY (ARRAY['viewer'::text, 'operator'::text, 'tenant_admin'::text, 'super_admin'::text, 'application'::text, 'worker'::text, 'agent'::text]))),
    CONSTRAINT tokens_scopes CHECK ((scopes <> '{}'::text[])),
    CONSTRAINT tokens_super CHECK (((role <> 'super_admin'::text) OR (tenant_id IS NULL))),
    CONSTRAINT tokens_tenant CHECK (((role = ANY (ARRAY['super_admin'::text, 'worker'::text])) OR (tenant_id IS NOT NULL)))
);

ALTER TABLE ONLY fairlead.tokens FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.trigger_firings (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    trigger_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    slot text NOT NULL,
    scheduled_at timestamp with time zone,
    event_id uuid,
    outcome text NOT NULL,
    job_id uuid,
    reason text,
    detail text,
    covers integer DEFAULT 1,
    covers_until timestamp with time zone,
    fired_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT trigger_firings_outcome CHECK (
CASE outcome
    WHEN 'enqueued'::text THEN ((job_id IS NOT NULL) AND (reason IS NULL))
    WHEN 'deduplicated'::text THEN (job_id IS NOT NULL)
    WHEN 'skipped'::text THEN (reason IS NOT NULL)
    WHEN 'failed'::text THEN (reason IS NOT NULL)
    ELSE false
END)
);

ALTER TABLE ONLY fairlead.trigger_firings FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.usage_hourly (
    tenant_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    hour timestamp with time zone NOT NULL,
    runs bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    dead_letter bigint NOT NULL,
    canceled bigint NOT NULL,
    retried bigint NOT NULL,
    run_ms bigint NOT NULL,
    queue_ms bigint NOT NULL,
    cost_cents bigint NOT NULL
)
WITH (fillfactor='70');

ALTER TABLE ONLY fairlead.usage_hourly FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.usage_told (
    tenant_id uuid NOT NULL,
    until timestamp with time zone NOT NULL
);

ALTER TABLE ONLY fairlead.usage_told FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.users (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    tenant_id uuid,
    email text NOT NULL,
    password_hash text,
    role text NOT NULL,
    created_by text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    disabled_at timestamp with time zone,
    left_at timestamp with time zone,
    timezone text,
    hour_cycle text,
    CONSTRAINT users_hour_cycle CHECK ((hour_cycle = ANY (ARRAY['h12'::text, 'h23'::text]))),
    CONSTRAINT users_role CHECK ((role = ANY (ARRAY['viewer'::text, 'operator'::text, 'tenant_admin'::text, 'super_admin'::text]))),
    CONSTRAINT users_tenant CHECK (((role = 'super_admin'::text) = (tenant_id IS NULL)))
);

ALTER TABLE ONLY fairlead.users FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.worker_claims (
    worker_id text NOT NULL,
    claim_id uuid NOT NULL,
    token uuid NOT NULL,
    jobs uuid[] NOT NULL,
    repeated boolean DEFAULT false NOT NULL,
    made_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE fairlead.workflow_runs (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    workflow_id uuid,
    key text NOT NULL,
    version integer,
    status text DEFAULT 'running'::text NOT NULL,
    steps integer NOT NULL,
    live integer DEFAULT 0 NOT NULL,
    failing boolean DEFAULT false NOT NULL,
    cancel_requested_at timestamp with time zone,
    parent_job_id uuid,
    answered boolean DEFAULT false NOT NULL,
    parent_asleep boolean DEFAULT false NOT NULL,
    started_by_job uuid,
    depth integer DEFAULT 0 NOT NULL,
    root_run_id uuid,
    unique_key text,
    correlation_id text,
    input jsonb NOT NULL,
    output_template jsonb,
    output jsonb,
    error jsonb,
    secret_paths text[] DEFAULT '{}'::text[] NOT NULL,
    created_by text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT workflow_runs_life CHECK (((status = ANY (ARRAY['running'::text, 'succeeded'::text, 'failed'::text, 'canceled'::text])) AND ((status = 'running'::text) = (finished_at IS NULL)) AND (live >= 0)))
)
WITH (fillfactor='50');

ALTER TABLE ONLY fairlead.workflow_runs FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.workflow_steps (
    run_id uuid NOT NULL,
    place integer NOT NULL,
    tenant_id uuid NOT NULL,
    name text NOT NULL,
    definition_key text NOT NULL,
    spec jsonb NOT NULL,
    checked_version integer,
    before integer[] NOT NULL,
    next integer[] NOT NULL,
    on_failure text NOT NULL,
    compensation integer,
    is_compensation boolean DEFAULT false NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    pending integer NOT NULL,
    ran integer DEFAULT 0 NOT NULL,
    items integer,
    remaining integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    canceled integer DEFAULT 0 NOT NULL,
    error jsonb,
    left_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    CONSTRAINT workflow_steps_life CHECK (((state = ANY (ARRAY['waiting'::text, 'running'::text, 'succeeded'::text, 'failed'::text, 'canceled'::text, 'skipped'::text, 'stopped'::text])) AND ((state = 'running'::text) = (remaining > 0)) AND (pending >= 0)))
)
WITH (fillfactor='60');

ALTER TABLE ONLY fairlead.workflow_steps FORCE ROW LEVEL SECURITY;

CREATE TABLE fairlead.workflows (
    id uuid DEFAULT fairlead.uuid7() NOT NULL,
    tenant_id uuid NOT NULL,
    is_shared boolean DEFAULT false NOT NULL,
    key text NOT NULL,
    version integer NOT NULL,
    spec jsonb NOT NULL,
    secret_paths text[] DEFAULT '{}'::text[] NOT NULL,
    created_by text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT workflows_shared CHECK (((NOT is_shared) OR (tenant_id = '00000000-0000-7000-8000-000000000000'::uuid)))
);

ALTER TABLE ONLY fairlead.workflows FORCE ROW LEVEL SECURITY;

ALTER TABLE ONLY fairlead.audit_log ATTACH PARTITION fairlead.audit_log_rest DEFAULT;

ALTER TABLE ONLY fairlead.account_links
    ADD CONSTRAINT account_links_pkey PRIMARY KEY (secret_hash);

ALTER TABLE ONLY fairlead.account_mails
    ADD CONSTRAINT account_mails_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY fairlead.active_keys
    ADD CONSTRAINT active_keys_pkey PRIMARY KEY (tenant_id, key_hash);

ALTER TABLE ONLY fairlead.allotment_grants
    ADD CONSTRAINT allotment_grants_pkey PRIMARY KEY (definition_id, cell_id);

ALTER TABLE ONLY fairlead.allotments
    ADD CONSTRAINT allotments_pkey PRIMARY KEY (definition_id);

ALTER TABLE ONLY fairlead.allowances
    ADD CONSTRAINT allowances_pkey PRIMARY KEY (key);

ALTER TABLE ONLY fairlead.approvals
    ADD CONSTRAINT approvals_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.cell_rounds
    ADD CONSTRAINT cell_rounds_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY fairlead.cells
    ADD CONSTRAINT cells_cell_id_key UNIQUE (cell_id);

ALTER TABLE ONLY fairlead.cells
    ADD CONSTRAINT cells_pkey PRIMARY KEY (name);

ALTER TABLE ONLY fairlead.checks
    ADD CONSTRAINT checks_pkey PRIMARY KEY (name);

ALTER TABLE ONLY fairlead.count_levels
    ADD CONSTRAINT count_levels_pkey PRIMARY KEY (tenant_id, definition_id);

ALTER TABLE ONLY fairlead.debounces
    ADD CONSTRAINT debounces_pkey PRIMARY KEY (tenant_id, key_hash);

ALTER TABLE ONLY fairlead.dedupe_windows
    ADD CONSTRAINT dedupe_windows_pkey PRIMARY KEY (tenant_id, hash);

ALTER TABLE ONLY fairlead.definition_versions
    ADD CONSTRAINT definition_versions_pkey PRIMARY KEY (definition_id, version);

ALTER TABLE ONLY fairlead.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY fairlead.duties
    ADD CONSTRAINT duties_pkey PRIMARY KEY (name);

ALTER TABLE ONLY fairlead.ended_children
    ADD CONSTRAINT ended_children_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY fairlead.ended_steps
    ADD CONSTRAINT ended_steps_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY fairlead.enrolment_codes
    ADD CONSTRAINT enrolment_codes_pkey PRIMARY KEY (code_hash);

ALTER TABLE ONLY fairlead.error_group_hours
    ADD CONSTRAINT error_group_hours_pkey PRIMARY KEY (group_id, hour);

ALTER TABLE ONLY fairlead.error_group_jobs
    ADD CONSTRAINT error_group_jobs_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY fairlead.error_groups
    ADD CONSTRAINT error_groups_fingerprint UNIQUE (tenant_id, definition_id, fingerprint);

ALTER TABLE ONLY fairlead.error_groups
    ADD CONSTRAINT error_groups_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.events_waiting
    ADD CONSTRAINT events_waiting_pkey PRIMARY KEY (event_id);

ALTER TABLE ONLY fairlead.expiries
    ADD CONSTRAINT expiries_pkey PRIMARY KEY (expires_at, job_id);

ALTER TABLE ONLY fairlead.function_sources
    ADD CONSTRAINT function_sources_pkey PRIMARY KEY (name);

ALTER TABLE ONLY fairlead.handovers
    ADD CONSTRAINT handovers_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY fairlead.hook_deliveries
    ADD CONSTRAINT hook_deliveries_pkey PRIMARY KEY (hook_id, key);

ALTER TABLE ONLY fairlead.hooks
    ADD CONSTRAINT hooks_name_taken UNIQUE (tenant_id, name);

ALTER TABLE ONLY fairlead.hooks
    ADD CONSTRAINT hooks_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.hosts
    ADD CONSTRAINT hosts_name UNIQUE (name, tenant_id);

ALTER TABLE ONLY fairlead.hosts
    ADD CONSTRAINT hosts_of_tenant UNIQUE (tenant_id, id);

ALTER TABLE ONLY fairlead.hosts
    ADD CONSTRAINT hosts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (scope_id, key);

ALTER TABLE ONLY fairlead.identities
    ADD CONSTRAINT identities_id_key UNIQUE (id);

ALTER TABLE ONLY fairlead.identities
    ADD CONSTRAINT identities_pkey PRIMARY KEY (user_id, issuer);

ALTER TABLE ONLY fairlead.job_attempts
    ADD CONSTRAINT job_attempts_pkey PRIMARY KEY (job_id, attempt_no);

ALTER TABLE ONLY fairlead.job_definitions
    ADD CONSTRAINT job_definitions_key_key UNIQUE (key);

ALTER TABLE ONLY fairlead.job_definitions
    ADD CONSTRAINT job_definitions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.job_records
    ADD CONSTRAINT job_records_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.job_signals
    ADD CONSTRAINT job_signals_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.job_steps
    ADD CONSTRAINT job_steps_pkey PRIMARY KEY (job_id, branch, "position");

ALTER TABLE ONLY fairlead.job_tags
    ADD CONSTRAINT job_tags_pkey PRIMARY KEY (tenant_id, tag, job_id);

ALTER TABLE ONLY fairlead.job_triggers
    ADD CONSTRAINT job_triggers_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.job_workers
    ADD CONSTRAINT job_workers_pkey PRIMARY KEY (worker_id);

ALTER TABLE ONLY fairlead.key_locks
    ADD CONSTRAINT key_locks_pkey PRIMARY KEY (definition_id, tenant_id, limit_key);

ALTER TABLE ONLY fairlead.later
    ADD CONSTRAINT later_pkey PRIMARY KEY (due_at, job_id);

ALTER TABLE ONLY fairlead.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY fairlead.limit_locks
    ADD CONSTRAINT limit_locks_pkey PRIMARY KEY (scope, scope_id, other_id, slot);

ALTER TABLE ONLY fairlead.live_tickets
    ADD CONSTRAINT live_tickets_pkey PRIMARY KEY (ticket_hash);

ALTER TABLE ONLY fairlead.log_chunks
    ADD CONSTRAINT log_chunks_pkey PRIMARY KEY (job_id, attempt_no, seq);

ALTER TABLE ONLY fairlead.lost_workers
    ADD CONSTRAINT lost_workers_pkey PRIMARY KEY (worker_id);

ALTER TABLE ONLY fairlead.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);

ALTER TABLE ONLY fairlead.oidc_logouts
    ADD CONSTRAINT oidc_logouts_pkey PRIMARY KEY (token_hash);

ALTER TABLE ONLY fairlead.oidc_sessions
    ADD CONSTRAINT oidc_sessions_pkey PRIMARY KEY (secret_hash);

ALTER TABLE ONLY fairlead.oidc_sign_ins
    ADD CONSTRAINT oidc_sign_ins_pkey PRIMARY KEY (state_hash);

ALTER TABLE ONLY fairlead.openings
    ADD CONSTRAINT openings_pkey PRIMARY KEY (tenant_id, quota, server_id);

ALTER TABLE ONLY fairlead.pending_sign_ins
    ADD CONSTRAINT pending_sign_ins_pkey PRIMARY KEY (secret_hash);

ALTER TABLE ONLY fairlead.pulse
    ADD CONSTRAINT pulse_pkey PRIMARY KEY (is_only);

ALTER TABLE ONLY fairlead.rate_buckets
    ADD CONSTRAINT rate_buckets_pkey PRIMARY KEY (definition_id, tenant_id, limit_key);

ALTER TABLE ONLY fairlead.resources
    ADD CONSTRAINT resources_name UNIQUE (tenant_id, kind, name);

ALTER TABLE ONLY fairlead.resources
    ADD CONSTRAINT resources_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.saved_views
    ADD CONSTRAINT saved_views_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.second_factors
    ADD CONSTRAINT second_factors_pkey PRIMARY KEY (user_id);

ALTER TABLE ONLY fairlead.sessions
    ADD CONSTRAINT sessions_id_key UNIQUE (id);

ALTER TABLE ONLY fairlead.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (secret_hash);

ALTER TABLE ONLY fairlead.source_messages
    ADD CONSTRAINT source_messages_pkey PRIMARY KEY (source, message_id);

ALTER TABLE ONLY fairlead.sources
    ADD CONSTRAINT sources_pkey PRIMARY KEY (name);

ALTER TABLE ONLY fairlead.system
    ADD CONSTRAINT system_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY fairlead.tenant_cells
    ADD CONSTRAINT tenant_cells_pkey PRIMARY KEY (tenant_id);

ALTER TABLE ONLY fairlead.tenant_cells
    ADD CONSTRAINT tenant_cells_slug_key UNIQUE (slug);

ALTER TABLE ONLY fairlead.tenant_keys
    ADD CONSTRAINT tenant_keys_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.tenant_moves
    ADD CONSTRAINT tenant_moves_pkey PRIMARY KEY (tenant_id);

ALTER TABLE ONLY fairlead.tenant_use
    ADD CONSTRAINT tenant_use_pkey PRIMARY KEY (tenant_id);

ALTER TABLE ONLY fairlead.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.tenants
    ADD CONSTRAINT tenants_slug_key UNIQUE (slug);

ALTER TABLE ONLY fairlead.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.tokens
    ADD CONSTRAINT tokens_secret_hash_key UNIQUE (secret_hash);

ALTER TABLE ONLY fairlead.trigger_firings
    ADD CONSTRAINT trigger_firings_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.trigger_firings
    ADD CONSTRAINT trigger_firings_slot UNIQUE (trigger_id, slot);

ALTER TABLE ONLY fairlead.usage_hourly
    ADD CONSTRAINT usage_hourly_pkey PRIMARY KEY (tenant_id, hour, definition_id);

ALTER TABLE ONLY fairlead.usage_told
    ADD CONSTRAINT usage_told_pkey PRIMARY KEY (tenant_id);

ALTER TABLE ONLY fairlead.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.worker_claims
    ADD CONSTRAINT worker_claims_pkey PRIMARY KEY (worker_id, claim_id);

ALTER TABLE ONLY fairlead.workflow_runs
    ADD CONSTRAINT workflow_runs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.workflow_steps
    ADD CONSTRAINT workflow_steps_name UNIQUE (name, run_id);

ALTER TABLE ONLY fairlead.workflow_steps
    ADD CONSTRAINT workflow_steps_pkey PRIMARY KEY (run_id, place);

ALTER TABLE ONLY fairlead.workflows
    ADD CONSTRAINT workflows_pkey PRIMARY KEY (id);

ALTER TABLE ONLY fairlead.workflows
    ADD CONSTRAINT workflows_version UNIQUE (tenant_id, key, version);

CREATE INDEX account_links_by_expiry ON fairlead.account_links USING btree (expires_at);

CREATE UNIQUE INDEX account_links_live ON fairlead.account_links USING btree (user_id, purpose) WHERE ((used_at IS NULL) AND (revoked_at IS NULL));

CREATE INDEX active_keys_until ON fairlead.active_keys USING btree (unique_until, tenant_id, key_hash) WHERE (unique_until IS NOT NULL);

CREATE INDEX approvals_by_job ON fairlead.approvals USING btree (job_id, id);

CREATE INDEX approvals_by_tenant ON fairlead.approvals USING btree (tenant_id, id);

CREATE INDEX approvals_open ON fairlead.approvals USING btree (tenant_id, id) WHERE (status = 'open'::text);

CREATE INDEX approvals_open_anywhere ON fairlead.approvals USING btree (id) WHERE (status = 'open'::text);

CREATE INDEX approvals_to_escalate ON fairlead.approvals USING btree (escalate_at) WHERE ((escalate_at IS NOT NULL) AND (escalated_at IS NULL) AND (status = ANY (ARRAY['open'::text, 'expired'::text])));

CREATE INDEX audit_by_tenant ON ONLY fairlead.audit_log USING btree (tenant_id, at);

CREATE INDEX audit_log_rest_tenant_id_at_idx ON fairlead.audit_log_rest USING btree (tenant_id, at);

CREATE UNIQUE INDEX cells_home ON fairlead.cells USING btree ((true)) WHERE (url IS NULL);

CREATE INDEX counts_by_level ON fairlead.counts USING btree (leveled, tenant_id, minute);

CREATE INDEX dedupe_windows_by_age ON fairlead.dedupe_windows USING btree (expires_at);

CREATE INDEX deliveries_by_host ON fairlead.deliveries USING btree (host_id);

CREATE INDEX enrolment_codes_by_age ON fairlead.enrolment_codes USING btree (expires_at);

CREATE INDEX error_group_changes_by_group ON fairlead.error_group_changes USING btree (group_id);

CREATE INDEX error_group_hours_by_age ON fairlead.error_group_hours USING btree (hour);

CREATE INDEX error_group_jobs_by_time ON fairlead.error_group_jobs USING btree (group_id, status, failed_at, job_id);

CREATE INDEX error_groups_by_tenant ON fairlead.error_groups USING btree (tenant_id, last_seen);

CREATE INDEX error_groups_by_time ON fairlead.error_groups USING btree (last_seen) WHERE (seen > 0);

CREATE INDEX events_by_age ON fairlead.events USING btree (recorded_at);

CREATE INDEX events_by_name ON fairlead.events USING btree (tenant_id, name, id);

CREATE INDEX events_by_tenant ON fairlead.events USING btree (tenant_id, id);

CREATE INDEX events_waiting_by_tenant ON fairlead.events_waiting USING btree (tenant_id, due_at, event_id);

CREATE INDEX events_waiting_due ON fairlead.events_waiting USING btree (due_at, event_id);

CREATE INDEX expiries_by_tenant ON fairlead.expiries USING btree (tenant_id);

CREATE INDEX handovers_by_engine ON fairlead.handovers USING btree (engine);

CREATE INDEX hook_deliveries_by_age ON fairlead.hook_deliveries USING brin (received_at);

CREATE INDEX hook_deliveries_by_time ON fairlead.hook_deliveries USING btree (hook_id, received_at);

CREATE INDEX hook_secrets_by_hook ON fairlead.hook_secrets USING btree (hook_id);

CREATE INDEX idempotency_keys_by_age ON fairlead.idempotency_keys USING btree (created_at);

CREATE UNIQUE INDEX identities_person ON fairlead.identities USING btree (issuer, subject, COALESCE(tenant_id, '00000000-0000-0000-0000-000000000000'::uuid));

CREATE INDEX job_signals_by_job ON fairlead.job_signals USING btree (job_id, name, id);

CREATE INDEX job_steps_waiting_for_children ON fairlead.job_steps USING btree (child_id) WHERE ((child_id IS NOT NULL) AND (status = 'waiting'::text));

CREATE INDEX job_steps_waiting_for_events ON fairlead.job_steps USING btree (tenant_id, name, match_key, job_id, branch, "position") WHERE ((kind = 'event'::text) AND (status = 'waiting'::text));

CREATE INDEX job_triggers_by_definition ON fairlead.job_triggers USING btree (definition_id) WHERE (deleted_at IS NULL);

CREATE INDEX job_triggers_by_event ON fairlead.job_triggers USING btree (tenant_id, event_name) WHERE ((event_name IS NOT NULL) AND is_enabled AND (deleted_at IS NULL));

CREATE UNIQUE INDEX job_triggers_by_name ON fairlead.job_triggers USING btree (tenant_id, owner, name) WHERE ((owner IS NOT NULL) AND (deleted_at IS NULL));

CREATE INDEX job_triggers_by_tenant ON fairlead.job_triggers USING btree (tenant_id, id) WHERE (deleted_at IS NULL);

CREATE INDEX job_triggers_due ON fairlead.job_triggers USING btree (next_fire_at) WHERE (next_fire_at IS NOT NULL);

CREATE INDEX job_triggers_of_ends ON fairlead.job_triggers USING btree (tenant_id, event_name) WHERE ((event_name ~~ 'job.%'::text) AND is_enabled AND (deleted_at IS NULL));

CREATE INDEX job_workers_of_tenant ON fairlead.job_workers USING btree (tenant_id) WHERE (tenant_id IS NOT NULL);

CREATE INDEX jobs_by_correlation ON fairlead.job_records USING btree (tenant_id, correlation_id, id) WHERE (correlation_id IS NOT NULL);

CREATE INDEX jobs_by_dedupe_key ON fairlead.job_records USING btree (tenant_id, hashtextextended(dedupe_key, (0)::bigint), id) WHERE (dedupe_key IS NOT NULL);

CREATE INDEX jobs_by_definition ON fairlead.job_records USING btree (tenant_id, definition_id, id);

CREATE INDEX jobs_by_parent ON fairlead.job_records USING btree (parent_id) WHERE (parent_id IS NOT NULL);

CREATE INDEX jobs_by_run ON fairlead.job_records USING btree (workflow_run_id, workflow_step, workflow_item) WHERE (workflow_run_id IS NOT NULL);

CREATE INDEX jobs_by_tenant ON fairlead.job_records USING btree (tenant_id, id);

CREATE INDEX jobs_troubled ON fairlead.job_records USING btree (tenant_id, id) WHERE troubled;

CREATE INDEX later_alone ON fairlead.later USING btree (tenant_id, definition_id, due_at, job_id) WHERE alone;

CREATE INDEX later_by_key ON fairlead.later USING btree (definition_id, tenant_id, limit_key, job_id) WHERE (limit_key IS NOT NULL);

CREATE INDEX later_by_tenant ON fairlead.later USING btree (tenant_id, job_id);

CREATE INDEX later_due ON fairlead.later USING btree (due_at, job_id) WHERE ((NOT alone) AND (NOT held));

CREATE INDEX later_held ON fairlead.later USING btree (definition_id, tenant_id, limit_key, priority, job_id) WHERE held;

CREATE INDEX leases_by_definition ON fairlead.leases USING btree (definition_id, tenant_id);

CREATE INDEX leases_by_host ON fairlead.leases USING btree (host_id) WHERE (host_id IS NOT NULL);

CREATE INDEX leases_by_key ON fairlead.leases USING btree (definition_id, tenant_id, limit_key) WHERE (limit_key IS NOT NULL);

CREATE INDEX leases_by_tenant ON fairlead.leases USING btree (tenant_id);

CREATE INDEX oidc_sessions_by_sid ON fairlead.oidc_sessions USING btree (issuer, sid) WHERE (sid IS NOT NULL);

CREATE INDEX oidc_sessions_by_user ON fairlead.oidc_sessions USING btree (user_id);

CREATE INDEX oidc_sign_ins_by_age ON fairlead.oidc_sign_ins USING btree (expires_at);

CREATE INDEX pending_sign_ins_by_user ON fairlead.pending_sign_ins USING btree (user_id);

CREATE INDEX rate_buckets_wake ON fairlead.rate_buckets USING btree (wake_at) WHERE (wake_at IS NOT NULL);

CREATE INDEX ready_by_definition ON fairlead.ready USING btree (definition_id, tenant_id) WHERE ((host_id IS NULL) AND (priority > '-2147483648'::integer));

CREATE UNIQUE INDEX ready_by_host ON fairlead.ready USING btree (host_id, tenant_id, definition_id, priority, scheduled_for, job_id) WHERE (host_id IS NOT NULL);

CREATE INDEX ready_by_key ON fairlead.ready USING btree (definition_id, tenant_id, limit_key, job_id) WHERE (limit_key IS NOT NULL);

CREATE UNIQUE INDEX ready_by_tenant ON fairlead.ready USING btree (tenant_id, definition_id, priority, scheduled_for, job_id) WHERE (host_id IS NULL);

CREATE INDEX removed_jobs_by_tenant ON fairlead.removed_jobs USING btree (tenant_id, definition_id);

CREATE INDEX resources_by_host ON fairlead.resources USING btree (host_id);

CREATE INDEX resources_by_name ON fairlead.resources USING btree (name, tenant_id);

CREATE INDEX run_jobs_by_root ON fairlead.run_jobs USING btree (root_run_id);

CREATE UNIQUE INDEX saved_views_by_name ON fairlead.saved_views USING btree (COALESCE(tenant_id, '00000000-0000-0000-0000-000000000000'::uuid), page, (
CASE
    WHEN is_shared THEN '00000000-0000-0000-0000-000000000000'::uuid
    ELSE owner_id
END), lower(name));

CREATE INDEX sessions_by_user ON fairlead.sessions USING btree (user_id);

CREATE INDEX source_messages_by_age ON fairlead.source_messages USING btree (expires_at);

CREATE INDEX tenant_cells_by_cell ON fairlead.tenant_cells USING btree (cell);

CREATE UNIQUE INDEX tenant_keys_current ON fairlead.tenant_keys USING btree (COALESCE(tenant_id, '00000000-0000-0000-0000-000000000000'::uuid)) WHERE (superseded_at IS NULL);

CREATE INDEX tenants_elsewhere ON fairlead.tenants USING btree (id) WHERE (placement <> 'here'::text);

CREATE INDEX tenants_limited ON fairlead.tenants USING btree (id) WHERE (max_running IS NOT NULL);

CREATE INDEX tenants_open ON fairlead.tenants USING btree (id) WHERE (paused_at IS NULL);

CREATE INDEX tenants_rated ON fairlead.tenants USING btree (id) WHERE (rate IS NOT NULL);

CREATE INDEX tokens_by_tenant ON fairlead.tokens USING btree (tenant_id, id);

CREATE INDEX tokens_of_user ON fairlead.tokens USING btree (user_id) WHERE (user_id IS NOT NULL);

CREATE INDEX trigger_firings_by_age ON fairlead.trigger_firings USING btree (fired_at);

CREATE INDEX trigger_firings_by_event ON fairlead.trigger_firings USING btree (event_id) WHERE (event_id IS NOT NULL);

CREATE INDEX trigger_firings_by_trigger ON fairlead.trigger_firings USING btree (trigger_id, id);

CREATE INDEX usage_hourly_by_hour ON fairlead.usage_hourly USING btree (hour);

CREATE INDEX users_by_tenant ON fairlead.users USING btree (tenant_id, id);

CREATE UNIQUE INDEX users_email ON fairlead.users USING btree (lower(email), COALESCE(tenant_id, '00000000-0000-0000-0000-000000000000'::uuid));

CREATE INDEX worker_claims_made ON fairlead.worker_claims USING btree (made_at);

CREATE INDEX workflow_runs_by_key ON fairlead.workflow_runs USING btree (tenant_id, key, id);

CREATE INDEX workflow_runs_by_parent ON fairlead.workflow_runs USING btree (parent_job_id) WHERE (parent_job_id IS NOT NULL);

CREATE INDEX workflow_runs_by_tenant ON fairlead.workflow_runs USING btree (tenant_id, id);

CREATE UNIQUE INDEX workflow_runs_by_unique_key ON fairlead.workflow_runs USING btree (tenant_id, unique_key) WHERE (unique_key IS NOT NULL);

CREATE INDEX workflow_runs_over ON fairlead.workflow_runs USING btree (finished_at) WHERE ((parent_job_id IS NOT NULL) AND (status <> 'running'::text));

CREATE INDEX workflow_runs_parent_asleep ON fairlead.workflow_runs USING btree (id) WHERE parent_asleep;

CREATE INDEX workflow_steps_left ON fairlead.workflow_steps USING btree (tenant_id, left_at) WHERE (left_at IS NOT NULL);

ALTER INDEX fairlead.audit_by_tenant ATTACH PARTITION fairlead.audit_log_rest_tenant_id_at_idx;

CREATE TRIGGER audit_rows_stay BEFORE DELETE OR UPDATE ON fairlead.audit_log FOR EACH ROW EXECUTE FUNCTION fairlead.refuse_change();

CREATE TRIGGER audit_stays BEFORE TRUNCATE ON fairlead.audit_log FOR EACH STATEMENT EXECUTE FUNCTION fairlead.refuse_change();

CREATE TRIGGER audit_stays BEFORE TRUNCATE ON fairlead.audit_log_rest FOR EACH STATEMENT EXECUTE FUNCTION fairlead.refuse_change();

CREATE TRIGGER definitions_keep_key BEFORE UPDATE OF key ON fairlead.job_definitions FOR EACH ROW WHEN ((new.key <> old.key)) EXECUTE FUNCTION fairlead.refuse_rename('key');

CREATE TRIGGER definitions_stay BEFORE DELETE ON fairlead.job_definitions FOR EACH ROW EXECUTE FUNCTION fairlead.refuse_delete();

CREATE TRIGGER definitions_version BEFORE UPDATE ON fairlead.job_definitions FOR EACH ROW EXECUTE FUNCTION fairlead.touch_definition();

CREATE TRIGGER tenants_keep_slug BEFORE UPDATE OF slug ON fairlead.tenants FOR EACH ROW WHEN ((new.slug <> old.slug)) EXECUTE FUNCTION fairlead.refuse_rename('slug');

CREATE TRIGGER tenants_stay BEFORE DELETE ON fairlead.tenants FOR EACH ROW EXECUTE FUNCTION fairlead.refuse_delete();

ALTER TABLE ONLY fairlead.account_links
    ADD CONSTRAINT account_links_user_id_fkey FOREIGN KEY (user_id) REFERENCES fairlead.users(id);

ALTER TABLE ONLY fairlead.definition_versions
    ADD CONSTRAINT definition_versions_definition_id_fkey FOREIGN KEY (definition_id) REFERENCES fairlead.job_definitions(id) ON DELETE CASCADE;

ALTER TABLE ONLY fairlead.enrolment_codes
    ADD CONSTRAINT enrolment_codes_host FOREIGN KEY (tenant_id, host_id) REFERENCES fairlead.hosts(tenant_id, id);

ALTER TABLE ONLY fairlead.enrolment_codes
    ADD CONSTRAINT enrolment_codes_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.events
    ADD CONSTRAINT events_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.hook_deliveries
    ADD CONSTRAINT hook_deliveries_hook_id_fkey FOREIGN KEY (hook_id) REFERENCES fairlead.hooks(id) ON DELETE CASCADE;

ALTER TABLE ONLY fairlead.hook_secrets
    ADD CONSTRAINT hook_secrets_hook_id_fkey FOREIGN KEY (hook_id) REFERENCES fairlead.hooks(id) ON DELETE CASCADE;

ALTER TABLE ONLY fairlead.hooks
    ADD CONSTRAINT hooks_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.hosts
    ADD CONSTRAINT hosts_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.identities
    ADD CONSTRAINT identities_user_id_fkey FOREIGN KEY (user_id) REFERENCES fairlead.users(id);

ALTER TABLE ONLY fairlead.job_triggers
    ADD CONSTRAINT job_triggers_definition_id_fkey FOREIGN KEY (definition_id) REFERENCES fairlead.job_definitions(id) ON DELETE RESTRICT;

ALTER TABLE ONLY fairlead.job_triggers
    ADD CONSTRAINT job_triggers_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.job_workers
    ADD CONSTRAINT job_workers_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.oidc_sessions
    ADD CONSTRAINT oidc_sessions_secret_hash_fkey FOREIGN KEY (secret_hash) REFERENCES fairlead.sessions(secret_hash) ON DELETE CASCADE;

ALTER TABLE ONLY fairlead.pending_sign_ins
    ADD CONSTRAINT pending_sign_ins_user_id_fkey FOREIGN KEY (user_id) REFERENCES fairlead.users(id);

ALTER TABLE ONLY fairlead.resources
    ADD CONSTRAINT resources_host_id_fkey FOREIGN KEY (host_id) REFERENCES fairlead.hosts(id);

ALTER TABLE ONLY fairlead.resources
    ADD CONSTRAINT resources_host_of_tenant FOREIGN KEY (tenant_id, host_id) REFERENCES fairlead.hosts(tenant_id, id);

ALTER TABLE ONLY fairlead.resources
    ADD CONSTRAINT resources_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.saved_views
    ADD CONSTRAINT saved_views_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.second_factors
    ADD CONSTRAINT second_factors_user_id_fkey FOREIGN KEY (user_id) REFERENCES fairlead.users(id);

ALTER TABLE ONLY fairlead.sessions
    ADD CONSTRAINT sessions_user_id_fkey FOREIGN KEY (user_id) REFERENCES fairlead.users(id);

ALTER TABLE ONLY fairlead.sources
    ADD CONSTRAINT sources_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.tenant_cells
    ADD CONSTRAINT tenant_cells_cell_fkey FOREIGN KEY (cell) REFERENCES fairlead.cells(name);

ALTER TABLE ONLY fairlead.tenant_keys
    ADD CONSTRAINT tenant_keys_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.tenant_moves
    ADD CONSTRAINT tenant_moves_source_fkey FOREIGN KEY (source) REFERENCES fairlead.cells(name);

ALTER TABLE ONLY fairlead.tenant_moves
    ADD CONSTRAINT tenant_moves_target_fkey FOREIGN KEY (target) REFERENCES fairlead.cells(name);

ALTER TABLE ONLY fairlead.tokens
    ADD CONSTRAINT tokens_host_of_tenant FOREIGN KEY (tenant_id, host_id) REFERENCES fairlead.hosts(tenant_id, id);

ALTER TABLE ONLY fairlead.tokens
    ADD CONSTRAINT tokens_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.tokens
    ADD CONSTRAINT tokens_user_id_fkey FOREIGN KEY (user_id) REFERENCES fairlead.users(id);

ALTER TABLE ONLY fairlead.trigger_firings
    ADD CONSTRAINT trigger_firings_trigger_id_fkey FOREIGN KEY (trigger_id) REFERENCES fairlead.job_triggers(id);

ALTER TABLE ONLY fairlead.users
    ADD CONSTRAINT users_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.workflow_runs
    ADD CONSTRAINT workflow_runs_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE ONLY fairlead.workflow_runs
    ADD CONSTRAINT workflow_runs_workflow_id_fkey FOREIGN KEY (workflow_id) REFERENCES fairlead.workflows(id);

ALTER TABLE ONLY fairlead.workflow_steps
    ADD CONSTRAINT workflow_steps_run_id_fkey FOREIGN KEY (run_id) REFERENCES fairlead.workflow_runs(id) ON DELETE CASCADE;

ALTER TABLE ONLY fairlead.workflows
    ADD CONSTRAINT workflows_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES fairlead.tenants(id);

ALTER TABLE fairlead.account_links ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.active_keys ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.approvals ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.audit_log ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.count_levels ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.counts ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.debounces ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.dedupe_windows ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.deliveries ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.ended_children ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.ended_steps ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.enrolment_codes ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.error_group_changes ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.error_group_hours ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.error_group_jobs ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.error_groups ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.events ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.events_waiting ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.expiries ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.failures ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.hook_deliveries ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.hook_secrets ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.hooks ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.hosts ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.idempotency_keys ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.identities ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.job_attempts ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.job_definitions ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.job_records ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.job_signals ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.job_steps ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.job_tags ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.job_triggers ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.job_workers ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.key_locks ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.later ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.leases ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.limit_locks ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.live_tickets ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.log_chunks ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.oidc_sessions ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.openings ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.pending_sign_ins ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.rate_buckets ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.ready ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.removed_jobs ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.resources ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.run_jobs ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.saved_views ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.second_factors ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.sessions ENABLE ROW LEVEL SECURITY;

CREATE POLICY shared_rows ON fairlead.job_workers FOR SELECT TO fairlead_tenant USING ((tenant_id IS NULL));

CREATE POLICY shared_rows ON fairlead.tenant_keys FOR SELECT TO fairlead_tenant USING ((tenant_id = '00000000-0000-7000-8000-000000000000'::uuid));

CREATE POLICY shared_rows ON fairlead.workflows FOR SELECT TO fairlead_tenant USING (is_shared);

ALTER TABLE fairlead.sources ENABLE ROW LEVEL SECURITY;

CREATE POLICY system_rows ON fairlead.account_links TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.active_keys TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.approvals TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.audit_log TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.count_levels TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.counts TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.debounces TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.dedupe_windows TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.deliveries TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.ended_children TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.ended_steps TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.enrolment_codes TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.error_group_changes TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.error_group_hours TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.error_group_jobs TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.error_groups TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.events TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.events_waiting TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.expiries TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.failures TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.hook_deliveries TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.hook_secrets TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.hooks TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.hosts TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.idempotency_keys TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.identities TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.job_attempts TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.job_definitions TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.job_records TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.job_signals TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.job_steps TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.job_tags TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.job_triggers TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.job_workers TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.key_locks TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.later TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.leases TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.limit_locks TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.live_tickets TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.log_chunks TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.oidc_sessions TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.openings TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.pending_sign_ins TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.rate_buckets TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.ready TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.removed_jobs TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.resources TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.run_jobs TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.saved_views TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.second_factors TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.sessions TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.sources TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.tenant_cells TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.tenant_keys TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.tenant_moves TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.tenant_use TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.tenants TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.tokens TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.trigger_firings TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.usage_hourly TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.usage_told TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.users TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.workflow_runs TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.workflow_steps TO fairlead_system USING (true) WITH CHECK (true);

CREATE POLICY system_rows ON fairlead.workflows TO fairlead_system USING (true) WITH CHECK (true);

ALTER TABLE fairlead.tenant_cells ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.tenant_keys ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.tenant_moves ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant_rows ON fairlead.account_links TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.active_keys TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.approvals TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.audit_log TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.count_levels TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.counts TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.debounces TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.dedupe_windows TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.deliveries TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.ended_children TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.ended_steps TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.enrolment_codes TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.error_group_changes TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.error_group_hours TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.error_group_jobs TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.error_groups TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.events TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.events_waiting TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.expiries TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.failures TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.hook_deliveries TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.hook_secrets TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.hooks TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.hosts TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.idempotency_keys TO fairlead_tenant USING ((scope_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((scope_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.identities TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.job_attempts TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.job_definitions FOR SELECT TO fairlead_tenant USING (((only_tenants IS NULL) OR (( SELECT fairlead.tenant_of_session() AS tenant_of_session) = ANY (only_tenants))));

CREATE POLICY tenant_rows ON fairlead.job_records TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.job_signals TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.job_steps TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.job_tags TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.job_triggers TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.job_workers TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.key_locks TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.later TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.leases TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.live_tickets TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.log_chunks TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.oidc_sessions TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.openings TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.pending_sign_ins TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.rate_buckets TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.ready TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.removed_jobs TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.resources TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.run_jobs TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.saved_views TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.second_factors TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.sessions TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.sources TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.tenant_cells TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.tenant_keys TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.tenant_moves TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.tenant_use TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.tenants TO fairlead_tenant USING ((id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.tokens TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.trigger_firings TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.usage_hourly TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.usage_told TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.users TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.workflow_runs TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.workflow_steps TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

CREATE POLICY tenant_rows ON fairlead.workflows TO fairlead_tenant USING ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session))) WITH CHECK ((tenant_id = ( SELECT fairlead.tenant_of_session() AS tenant_of_session)));

ALTER TABLE fairlead.tenant_use ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.tenants ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.tokens ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.trigger_firings ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.usage_hourly ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.usage_told ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.users ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.workflow_runs ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.workflow_steps ENABLE ROW LEVEL SECURITY;

ALTER TABLE fairlead.workflows ENABLE ROW LEVEL SECURITY;

GRANT USAGE ON SCHEMA fairlead TO fairlead_system;
GRANT USAGE ON SCHEMA fairlead TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.add_step_jobs(new fairlead.step_job[]) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.add_step_jobs(new fairlead.step_job[]) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.add_step_jobs(new fairlead.step_job[]) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.append_log(of_job uuid, of_attempt integer, lease_token uuid, of_tenant uuid, chunks jsonb, max_bytes bigint, max_chunks integer, last_seq integer, mark text, OUT kept integer, OUT truncated boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.append_log(of_job uuid, of_attempt integer, lease_token uuid, of_tenant uuid, chunks jsonb, max_bytes bigint, max_chunks integer, last_seq integer, mark text, OUT kept integer, OUT truncated boolean) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.apply_key_strategy(definition uuid, tenant uuid, limit_key uuid, by_key jsonb, new_job uuid, actor text, waits boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.apply_key_strategy(definition uuid, tenant uuid, limit_key uuid, by_key jsonb, new_job uuid, actor text, waits boolean) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.apply_key_strategy(definition uuid, tenant uuid, limit_key uuid, by_key jsonb, new_job uuid, actor text, waits boolean) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.as_id(name text) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.attempt_id(job_id uuid, attempt_no integer) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.attempt_id(job_id uuid, attempt_no integer) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.attempt_id(job_id uuid, attempt_no integer) TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.job_steps TO fairlead_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.job_steps TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.begin_wait(job_id uuid, attempt_no integer, token uuid, branch text, "position" integer, kind text, name text, seconds double precision, due timestamp with time zone, request jsonb, child uuid, tries integer, match_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.begin_wait(job_id uuid, attempt_no integer, token uuid, branch text, "position" integer, kind text, name text, seconds double precision, due timestamp with time zone, request jsonb, child uuid, tries integer, match_key uuid) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.budgets(tenants uuid[], definitions uuid[], tenant_limits integer[], definition_limits integer[], pair_limits integer[], host uuid, host_limit integer, most_jobs integer, INOUT missed text[], OUT places jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.budgets(tenants uuid[], definitions uuid[], tenant_limits integer[], definition_limits integer[], pair_limits integer[], host uuid, host_limit integer, most_jobs integer, INOUT missed text[], OUT places jsonb) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.cancel_waiting(ids uuid[], reason text, message text, actor text, with_steps boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.cancel_waiting(ids uuid[], reason text, message text, actor text, with_steps boolean) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.cancel_waiting(ids uuid[], reason text, message text, actor text, with_steps boolean) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.claim(worker text, token uuid, wanted integer, lease_seconds double precision, served uuid[], at_tenant uuid, credit integer, host uuid, served_pairs text[], with_waits boolean, labels jsonb, most_slots integer, prefer_seconds double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.claim(worker text, token uuid, wanted integer, lease_seconds double precision, served uuid[], at_tenant uuid, credit integer, host uuid, served_pairs text[], with_waits boolean, labels jsonb, most_slots integer, prefer_seconds double precision) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.claim_suspect(worker text, token uuid, lease_seconds double precision, served uuid[], served_pairs text[], idle boolean, with_waits boolean, only_look boolean, labels jsonb, most_slots integer) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.claim_suspect(worker text, token uuid, lease_seconds double precision, served uuid[], served_pairs text[], idle boolean, with_waits boolean, only_look boolean, labels jsonb, most_slots integer) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.closed_until(tenant uuid, tenant_most integer, tenant_rate jsonb, definition uuid, definition_most integer, definition_rate jsonb, pair_most integer, pair_rate jsonb, moment timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.closed_until(tenant uuid, tenant_most integer, tenant_rate jsonb, definition uuid, definition_most integer, definition_rate jsonb, pair_most integer, pair_rate jsonb, moment timestamp with time zone) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.complete_waits(waits jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.complete_waits(waits jsonb) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.complete_waits(waits jsonb) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.cost_of(cost text, payload jsonb) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.cost_of(cost text, payload jsonb) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.database_identity() FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.database_identity() TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.debounce_job(tenant uuid, definition uuid, new_job uuid, debounce jsonb, payload jsonb, host uuid, resource uuid, new_key uuid, expires_in double precision, by_key jsonb, OUT moved uuid, OUT due_at timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.debounce_job(tenant uuid, definition uuid, new_job uuid, debounce jsonb, payload jsonb, host uuid, resource uuid, new_key uuid, expires_in double precision, by_key jsonb, OUT moved uuid, OUT due_at timestamp with time zone) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.debounce_job(tenant uuid, definition uuid, new_job uuid, debounce jsonb, payload jsonb, host uuid, resource uuid, new_key uuid, expires_in double precision, by_key jsonb, OUT moved uuid, OUT due_at timestamp with time zone) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.definition_id(key text) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.definition_limit(definition uuid, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.definition_limit(definition uuid, most integer) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.definitions_of(keys text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.definitions_of(keys text[]) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.definitions_of(keys text[]) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.drop_audit_day(keep_days integer) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.drop_audit_day(keep_days integer) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.drop_audit_rest(keep_days integer, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.drop_audit_rest(keep_days integer, most integer) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.edit_waiting(job uuid, actor text, payload jsonb, priority integer, scheduled_for timestamp with time zone, with_target boolean, host_id uuid, resource_id uuid, tags text[], OUT outcome text, OUT waits boolean, OUT released bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.edit_waiting(job uuid, actor text, payload jsonb, priority integer, scheduled_for timestamp with time zone, with_target boolean, host_id uuid, resource_id uuid, tags text[], OUT outcome text, OUT waits boolean, OUT released bigint) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.edit_waiting(job uuid, actor text, payload jsonb, priority integer, scheduled_for timestamp with time zone, with_target boolean, host_id uuid, resource_id uuid, tags text[], OUT outcome text, OUT waits boolean, OUT released bigint) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.emit(tenant text, name text, data jsonb, correlation_id text, occurred_at timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.emit(tenant text, name text, data jsonb, correlation_id text, occurred_at timestamp with time zone) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.emit_joined(event text) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.emit_joined(event text) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.emit_one(tenant text, name text, data jsonb, correlation_id text, occurred_at timestamp with time zone, actor text, id uuid, caused_by uuid, OUT event_id uuid, OUT outcome text) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.emit_one(tenant text, name text, data jsonb, correlation_id text, occurred_at timestamp with time zone, actor text, id uuid, caused_by uuid, OUT event_id uuid, OUT outcome text) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.emit_one(tenant text, name text, data jsonb, correlation_id text, occurred_at timestamp with time zone, actor text, id uuid, caused_by uuid, OUT event_id uuid, OUT outcome text) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.enqueue(tenant text, definition text, payload jsonb, priority integer, scheduled_for timestamp with time zone, max_attempts integer, dedupe_key text, correlation_id text, tags text[], timeout interval, expires_in interval, unique_for interval, debounce jsonb, OUT job_id uuid, OUT deduplicated boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.enqueue(tenant text, definition text, payload jsonb, priority integer, scheduled_for timestamp with time zone, max_attempts integer, dedupe_key text, correlation_id text, tags text[], timeout interval, expires_in interval, unique_for interval, debounce jsonb, OUT job_id uuid, OUT deduplicated boolean) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.enqueue_joined(jobs text) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.enqueue_joined(jobs text) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.enqueue_one(tenant text, definition_key text, payload jsonb, priority integer, scheduled_for timestamp with time zone, max_attempts integer, dedupe_key text, correlation_id text, source fairlead.job_source, source_ref text, parent_id uuid, actor text, id uuid, expected_version integer, trace text, host_id uuid, resource_id uuid, quotas jsonb, tags text[], timeout integer, expires_in double precision, unique_for double precision, debounce jsonb, OUT job_id uuid, OUT outcome text, OUT definition jsonb, OUT tenant_id uuid, OUT definition_id uuid, OUT waits boolean, OUT quota jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.enqueue_one(tenant text, definition_key text, payload jsonb, priority integer, scheduled_for timestamp with time zone, max_attempts integer, dedupe_key text, correlation_id text, source fairlead.job_source, source_ref text, parent_id uuid, actor text, id uuid, expected_version integer, trace text, host_id uuid, resource_id uuid, quotas jsonb, tags text[], timeout integer, expires_in double precision, unique_for double precision, debounce jsonb, OUT job_id uuid, OUT outcome text, OUT definition jsonb, OUT tenant_id uuid, OUT definition_id uuid, OUT waits boolean, OUT quota jsonb) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.enqueue_one(tenant text, definition_key text, payload jsonb, priority integer, scheduled_for timestamp with time zone, max_attempts integer, dedupe_key text, correlation_id text, source fairlead.job_source, source_ref text, parent_id uuid, actor text, id uuid, expected_version integer, trace text, host_id uuid, resource_id uuid, quotas jsonb, tags text[], timeout integer, expires_in double precision, unique_for double precision, debounce jsonb, OUT job_id uuid, OUT outcome text, OUT definition jsonb, OUT tenant_id uuid, OUT definition_id uuid, OUT waits boolean, OUT quota jsonb) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.error_of_child(status fairlead.job_status, error jsonb, last_error text) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.error_of_child(status fairlead.job_status, error jsonb, last_error text) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.expire_jobs(most integer, OUT done bigint, OUT canceled uuid[], OUT released bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.expire_jobs(most integer, OUT done bigint, OUT canceled uuid[], OUT released bigint) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.finish_joined(request text) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.finish_joined(request text) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.fit_slots(INOUT ready_rows tid[], free integer, turns integer[], OUT short_of integer, OUT short_tenant uuid, OUT short_credit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.fit_slots(INOUT ready_rows tid[], free integer, turns integer[], OUT short_of integer, OUT short_tenant uuid, OUT short_credit integer) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.follows_an_end(job uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.follows_an_end(job uuid) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.follows_an_end(job uuid) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.free_key(tenant uuid, hash bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.free_key(tenant uuid, hash bytea) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.free_key(tenant uuid, hash bytea) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.full_tenants(moment timestamp with time zone, OUT tenants jsonb, OUT opens_at timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.full_tenants(moment timestamp with time zone, OUT tenants jsonb, OUT opens_at timestamp with time zone) TO fairlead_system;

GRANT ALL ON FUNCTION fairlead.has_plain_secret(paths text[], payload jsonb) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.has_plain_secret(paths text[], payload jsonb) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.has_plain_value(value jsonb, path text[]) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.has_plain_value(value jsonb, path text[]) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.has_second_factor(whose uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.has_second_factor(whose uuid) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.has_second_factor(whose uuid) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.hold_new_definition(definition uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.hold_new_definition(definition uuid) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.hold_placement(is_checked_elsewhere boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.hold_placement(is_checked_elsewhere boolean) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.hold_tenant(tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.hold_tenant(tenant text) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.hold_tenant(tenant text) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.invited_until(invited uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.invited_until(invited uuid) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.invited_until(invited uuid) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.ip_of_session() TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.ip_of_session() TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.is_backed(maker uuid, token_role text) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.is_backed(maker uuid, token_role text) TO fairlead_system;

GRANT ALL ON FUNCTION fairlead.is_distributed() TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.is_unused_bucket(definition uuid, tenant uuid, limit_key uuid, tokens double precision, counted_at timestamp with time zone, seconds double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.is_unused_bucket(definition uuid, tenant uuid, limit_key uuid, tokens double precision, counted_at timestamp with time zone, seconds double precision) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.jobs_with_key(key text, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.jobs_with_key(key text, most integer) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.jobs_with_key(key text, most integer) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.keep_keys(INOUT ready_rows tid[], OUT is_locked boolean, OUT held integer, OUT moment timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.keep_keys(INOUT ready_rows tid[], OUT is_locked boolean, OUT held integer, OUT moment timestamp with time zone) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.key_lock_of(definition uuid, tenant uuid, limit_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.key_lock_of(definition uuid, tenant uuid, limit_key uuid) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.key_turn_of(definition uuid, tenant uuid, limit_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.key_turn_of(definition uuid, tenant uuid, limit_key uuid) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.key_turn_of(definition uuid, tenant uuid, limit_key uuid) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.label_texts(labels jsonb) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.label_texts(labels jsonb) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.leave_expired(INOUT ready_rows tid[], OUT canceled integer) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.leave_expired(INOUT ready_rows tid[], OUT canceled integer) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.left_until(definition uuid, tenant uuid, due_at timestamp with time zone, prefer_seconds double precision, moment timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.left_until(definition uuid, tenant uuid, due_at timestamp with time zone, prefer_seconds double precision, moment timestamp with time zone) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.let_held_go(definition uuid, tenant uuid, limit_key uuid, by_key jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.let_held_go(definition uuid, tenant uuid, limit_key uuid, by_key jsonb) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.let_held_go(definition uuid, tenant uuid, limit_key uuid, by_key jsonb) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.limit_key_of(by_key jsonb, payload jsonb) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.limit_key_of(by_key jsonb, payload jsonb) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.lineage_of(job uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.lineage_of(job uuid) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.lineage_of(job uuid) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.listens_to_ends(actor text) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.listens_to_ends(actor text) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.listens_to_ends(actor text) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.move_on(ended jsonb, over jsonb, settings jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.move_on(ended jsonb, over jsonb, settings jsonb) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.move_on(ended jsonb, over jsonb, settings jsonb) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.need_read_committed() FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.need_read_committed() TO fairlead_system;

GRANT ALL ON FUNCTION fairlead.needs_coordinator() TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.next_pair(after_tenant uuid, after_definition uuid, INOUT lap integer, place uuid, edge uuid, definitions uuid[], full_tenants jsonb, OUT tenant_id uuid, OUT definition_id uuid, OUT priority integer, OUT scheduled_for timestamp with time zone, OUT job_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.next_pair(after_tenant uuid, after_definition uuid, INOUT lap integer, place uuid, edge uuid, definitions uuid[], full_tenants jsonb, OUT tenant_id uuid, OUT definition_id uuid, OUT priority integer, OUT scheduled_for timestamp with time zone, OUT job_id uuid) TO fairlead_system;

GRANT ALL ON FUNCTION fairlead.next_token_at(tokens double precision, counted_at timestamp with time zone, rate jsonb, wanted double precision) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.next_token_at(tokens double precision, counted_at timestamp with time zone, rate jsonb, wanted double precision) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.notify_in_transaction(word text) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.notify_in_transaction(word text) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.notify_in_transaction(word text) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.open_definitions(served uuid[], served_pairs text[], moment timestamp with time zone, labels jsonb, most_slots integer) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.open_definitions(served uuid[], served_pairs text[], moment timestamp with time zone, labels jsonb, most_slots integer) TO fairlead_system;

GRANT ALL ON FUNCTION fairlead.options_fit(tags text[], timeout double precision, expires_in double precision, unique_for double precision, debounce jsonb, dedupe_key text, scheduled_for timestamp with time zone) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.options_fit(tags text[], timeout double precision, expires_in double precision, unique_for double precision, debounce jsonb, dedupe_key text, scheduled_for timestamp with time zone) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.path_of_pointer(pointer text) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.prepare_audit_days(days integer) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.prepare_audit_days(days integer) TO fairlead_system;

GRANT ALL ON FUNCTION fairlead.principal_of_session() TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.principal_of_session() TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.quota_of(own jsonb, settings jsonb, quota text) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.rate_opens_at(definition uuid, tenant uuid, rate jsonb, moment timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.rate_opens_at(definition uuid, tenant uuid, rate jsonb, moment timestamp with time zone) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.rate_room(tenants uuid[], definitions uuid[], system_rate jsonb, INOUT missed text[], INOUT room jsonb, OUT buckets jsonb, OUT opens_at timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.rate_room(tenants uuid[], definitions uuid[], system_rate jsonb, INOUT missed text[], INOUT room jsonb, OUT buckets jsonb, OUT opens_at timestamp with time zone) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.rates_of(tenant uuid, definition uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.rates_of(tenant uuid, definition uuid) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.rates_of(tenant uuid, definition uuid) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.read_joined(request text) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.read_joined(request text) TO fairlead_system;

GRANT ALL ON FUNCTION fairlead.refusal_of(payload jsonb, priority integer, scheduled_for timestamp with time zone, max_attempts integer, dedupe_key text, correlation_id text) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.refusal_of(payload jsonb, priority integer, scheduled_for timestamp with time zone, max_attempts integer, dedupe_key text, correlation_id text) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.refuse_change() TO fairlead_system;

GRANT ALL ON FUNCTION fairlead.refuse_delete() TO fairlead_system;

GRANT ALL ON FUNCTION fairlead.refuse_rename() TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.release_keys(definitions uuid[], tenants uuid[], limit_keys uuid[], tidy boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.release_keys(definitions uuid[], tenants uuid[], limit_keys uuid[], tidy boolean) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.release_keys(definitions uuid[], tenants uuid[], limit_keys uuid[], tidy boolean) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.release_steps(runs uuid[], places integer[], ran integer[], settings jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.release_steps(runs uuid[], places integer[], ran integer[], settings jsonb) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.release_steps(runs uuid[], places integer[], ran integer[], settings jsonb) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.resolve(tenant text, definition_key text, expected_version integer) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.resolve(tenant text, definition_key text, expected_version integer) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.resource_named(definition_id uuid, payload jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.resource_named(definition_id uuid, payload jsonb) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.resource_named(definition_id uuid, payload jsonb) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.room_in_run(root uuid, more bigint, settings jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.room_in_run(root uuid, more bigint, settings jsonb) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.room_in_run(root uuid, more bigint, settings jsonb) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.room_of(tenant uuid, more bigint, settings jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.room_of(tenant uuid, more bigint, settings jsonb) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.room_of(tenant uuid, more bigint, settings jsonb) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.root_run_of(job uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.root_run_of(job uuid) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.root_run_of(job uuid) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.run_on_coordinator(statement text) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.run_on_coordinator(statement text) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.running_in(scope text, scope_id uuid, other_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.running_in(scope text, scope_id uuid, other_id uuid) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.spend_rates(ready_rows tid[], buckets jsonb, moment timestamp with time zone, in_turn tid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.spend_rates(ready_rows tid[], buckets jsonb, moment timestamp with time zone, in_turn tid[]) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.start_alone(job uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.start_alone(job uuid) TO fairlead_system;

REVOKE ALL ON FUNCTION fairlead.step_jobs_fit(new fairlead.step_job[], settings jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.step_jobs_fit(new fairlead.step_job[], settings jsonb) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.step_jobs_fit(new fairlead.step_job[], settings jsonb) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.swap_token(token uuid) TO fairlead_system;

GRANT ALL ON FUNCTION fairlead.target_of(tenant_id uuid, definition_id uuid, payload jsonb, host_id uuid, resource_id uuid, OUT target_host uuid, OUT target_resource uuid, OUT refusal text) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.target_of(tenant_id uuid, definition_id uuid, payload jsonb, host_id uuid, resource_id uuid, OUT target_host uuid, OUT target_resource uuid, OUT refusal text) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.tell_ends(ends fairlead.job_end[]) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.tell_ends(ends fairlead.job_end[]) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.tell_ends(ends fairlead.job_end[]) TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.tell_run_end(run uuid, failed_step text, last_error text) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.tell_run_end(run uuid, failed_step text, last_error text) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.tell_run_end(run uuid, failed_step text, last_error text) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.tenant_of_session() TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.tenant_of_session() TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.token_state(revoked_at timestamp with time zone, expires_at timestamp with time zone, maker uuid, token_role text) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.token_state(revoked_at timestamp with time zone, expires_at timestamp with time zone, maker uuid, token_role text) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.token_state(revoked_at timestamp with time zone, expires_at timestamp with time zone, maker uuid, token_role text) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.tokens_in(tokens double precision, counted_at timestamp with time zone, rate jsonb, moment timestamp with time zone) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.tokens_in(tokens double precision, counted_at timestamp with time zone, rate jsonb, moment timestamp with time zone) TO fairlead_tenant;

GRANT ALL ON FUNCTION fairlead.touch_definition() TO fairlead_system;

GRANT ALL ON FUNCTION fairlead.uuid7() TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.uuid7() TO fairlead_tenant;

REVOKE ALL ON FUNCTION fairlead.wake_functions(jobs uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION fairlead.wake_functions(jobs uuid[]) TO fairlead_system;
GRANT ALL ON FUNCTION fairlead.wake_functions(jobs uuid[]) TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.account_links TO fairlead_system;

GRANT SELECT(user_id) ON TABLE fairlead.account_links TO fairlead_tenant;

GRANT SELECT(tenant_id) ON TABLE fairlead.account_links TO fairlead_tenant;

GRANT SELECT(purpose) ON TABLE fairlead.account_links TO fairlead_tenant;

GRANT SELECT(expires_at) ON TABLE fairlead.account_links TO fairlead_tenant;

GRANT SELECT(used_at) ON TABLE fairlead.account_links TO fairlead_tenant;

GRANT SELECT(revoked_at) ON TABLE fairlead.account_links TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.account_mails TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.active_keys TO fairlead_system;
GRANT SELECT,INSERT,DELETE ON TABLE fairlead.active_keys TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.allotment_grants TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.allotments TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.allowances TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.approvals TO fairlead_system;
GRANT SELECT,UPDATE ON TABLE fairlead.approvals TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.job_attempts TO fairlead_system;
GRANT SELECT ON TABLE fairlead.job_attempts TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.job_records TO fairlead_system;
GRANT SELECT,INSERT,UPDATE ON TABLE fairlead.job_records TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.leases TO fairlead_system;
GRANT SELECT ON TABLE fairlead.leases TO fairlead_tenant;

GRANT UPDATE(worker_id) ON TABLE fairlead.leases TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.attempts TO fairlead_system;
GRANT SELECT ON TABLE fairlead.attempts TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.audit_log TO fairlead_system;
GRANT SELECT,INSERT ON TABLE fairlead.audit_log TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.audit_entries TO fairlead_system;
GRANT SELECT ON TABLE fairlead.audit_entries TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.audit_log_rest TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.cell_rounds TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.cells TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.checks TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.count_levels TO fairlead_system;
GRANT SELECT ON TABLE fairlead.count_levels TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.counts TO fairlead_system;
GRANT SELECT,INSERT ON TABLE fairlead.counts TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.debounces TO fairlead_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.debounces TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.dedupe_windows TO fairlead_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.dedupe_windows TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.definition_versions TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.deliveries TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.duties TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.ended_children TO fairlead_system;
GRANT SELECT,INSERT ON TABLE fairlead.ended_children TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.ended_steps TO fairlead_system;
GRANT INSERT ON TABLE fairlead.ended_steps TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.enrolment_codes TO fairlead_system;
GRANT INSERT,DELETE ON TABLE fairlead.enrolment_codes TO fairlead_tenant;

GRANT SELECT(host_id) ON TABLE fairlead.enrolment_codes TO fairlead_tenant;

GRANT SELECT(expires_at) ON TABLE fairlead.enrolment_codes TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.error_group_changes TO fairlead_system;
GRANT SELECT,INSERT ON TABLE fairlead.error_group_changes TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.error_group_hours TO fairlead_system;
GRANT SELECT ON TABLE fairlead.error_group_hours TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.error_group_jobs TO fairlead_system;
GRANT SELECT,DELETE ON TABLE fairlead.error_group_jobs TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.error_groups TO fairlead_system;
GRANT SELECT,UPDATE ON TABLE fairlead.error_groups TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.events TO fairlead_system;
GRANT SELECT,INSERT ON TABLE fairlead.events TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.events_waiting TO fairlead_system;
GRANT SELECT,INSERT ON TABLE fairlead.events_waiting TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.expiries TO fairlead_system;
GRANT SELECT,INSERT,DELETE ON TABLE fairlead.expiries TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.failures TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.function_sources TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.handovers TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.hook_deliveries TO fairlead_system;
GRANT SELECT,INSERT ON TABLE fairlead.hook_deliveries TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.hook_secrets TO fairlead_system;
GRANT INSERT ON TABLE fairlead.hook_secrets TO fairlead_tenant;

GRANT SELECT(hook_id) ON TABLE fairlead.hook_secrets TO fairlead_tenant;

GRANT SELECT(valid_until),UPDATE(valid_until) ON TABLE fairlead.hook_secrets TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.hooks TO fairlead_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.hooks TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.hosts TO fairlead_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.hosts TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.idempotency_keys TO fairlead_system;
GRANT SELECT,INSERT,UPDATE ON TABLE fairlead.idempotency_keys TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.identities TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.job_definitions TO fairlead_system;
GRANT SELECT ON TABLE fairlead.job_definitions TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.job_signals TO fairlead_system;
GRANT SELECT,INSERT,UPDATE ON TABLE fairlead.job_signals TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.job_tags TO fairlead_system;
GRANT SELECT,INSERT,DELETE ON TABLE fairlead.job_tags TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.job_triggers TO fairlead_system;
GRANT SELECT,INSERT,UPDATE ON TABLE fairlead.job_triggers TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.job_workers TO fairlead_system;

GRANT SELECT(tenant_id) ON TABLE fairlead.job_workers TO fairlead_tenant;

GRANT SELECT(queues) ON TABLE fairlead.job_workers TO fairlead_tenant;

GRANT SELECT(last_seen_at) ON TABLE fairlead.job_workers TO fairlead_tenant;

GRANT SELECT(drain_requested_at) ON TABLE fairlead.job_workers TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.jobs TO fairlead_system;
GRANT SELECT ON TABLE fairlead.jobs TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.key_locks TO fairlead_system;
GRANT SELECT,DELETE,UPDATE ON TABLE fairlead.key_locks TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.later TO fairlead_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.later TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.limit_locks TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.live_tickets TO fairlead_system;
GRANT SELECT,INSERT,DELETE ON TABLE fairlead.live_tickets TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.log_chunks TO fairlead_system;
GRANT SELECT ON TABLE fairlead.log_chunks TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.lost_workers TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.migrations TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.oidc_logouts TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.oidc_sessions TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.oidc_sign_ins TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.openings TO fairlead_system;
GRANT SELECT ON TABLE fairlead.openings TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.pending_sign_ins TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.pulse TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.rate_buckets TO fairlead_system;
GRANT SELECT,INSERT,UPDATE ON TABLE fairlead.rate_buckets TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.ready TO fairlead_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.ready TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.removed_jobs TO fairlead_system;
GRANT SELECT ON TABLE fairlead.removed_jobs TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.resources TO fairlead_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.resources TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.run_jobs TO fairlead_system;
GRANT SELECT,INSERT,DELETE ON TABLE fairlead.run_jobs TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.saved_views TO fairlead_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.saved_views TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.second_factors TO fairlead_system;
GRANT DELETE ON TABLE fairlead.second_factors TO fairlead_tenant;

GRANT SELECT(user_id) ON TABLE fairlead.second_factors TO fairlead_tenant;

GRANT SELECT(tenant_id) ON TABLE fairlead.second_factors TO fairlead_tenant;

GRANT SELECT(confirmed_at) ON TABLE fairlead.second_factors TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.sessions TO fairlead_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.sessions TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.source_messages TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.sources TO fairlead_system;
GRANT SELECT ON TABLE fairlead.sources TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.system TO fairlead_system;
GRANT SELECT ON TABLE fairlead.system TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.tenant_cells TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.tenant_keys TO fairlead_system;
GRANT SELECT,INSERT ON TABLE fairlead.tenant_keys TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.tenant_moves TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.tenant_use TO fairlead_system;
GRANT SELECT ON TABLE fairlead.tenant_use TO fairlead_tenant;

GRANT UPDATE(roomy_until) ON TABLE fairlead.tenant_use TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.tenants TO fairlead_system;
GRANT SELECT ON TABLE fairlead.tenants TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.tokens TO fairlead_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.tokens TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.trigger_firings TO fairlead_system;
GRANT SELECT,INSERT ON TABLE fairlead.trigger_firings TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.usage_hourly TO fairlead_system;
GRANT SELECT ON TABLE fairlead.usage_hourly TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.usage_told TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.users TO fairlead_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.users TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.worker_claims TO fairlead_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.workflow_runs TO fairlead_system;
GRANT SELECT,INSERT,UPDATE ON TABLE fairlead.workflow_runs TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.workflow_steps TO fairlead_system;
GRANT SELECT,INSERT,UPDATE ON TABLE fairlead.workflow_steps TO fairlead_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE fairlead.workflows TO fairlead_system;
GRANT SELECT,INSERT ON TABLE fairlead.workflows TO fairlead_tenant;

ALTER DEFAULT PRIVILEGES FOR ROLE fairlead IN SCHEMA fairlead GRANT ALL ON FUNCTIONS TO fairlead_system;

ALTER DEFAULT PRIVILEGES FOR ROLE fairlead IN SCHEMA fairlead GRANT SELECT,INSERT,DELETE,UPDATE ON TABLES TO fairlead_system;
