-- The tables of Fairlead, topic by topic: roles, tenants and definitions, hosts, jobs and the queue, attempts and logs,
-- error groups, counts and usage, triggers and events, workflows, access, audit, upkeep; at the end, which rows a tenant may see.
--
-- Stored functions are in ../functions, one file each. A line that begins with \ir applies one of them here, because a
-- table below needs it; all others are applied after the migrations.
--
-- Names are always qualified: no statement of ours depends on a search_path. The word `fairlead` stands for the
-- configured schema wherever it appears in our SQL.
--
-- In a distributed schema of Citus, `migrate` leaves out the statements that are marked with the line "-- not on Citus",
-- and elsewhere those that are marked "-- only on Citus". Citus has no triggers on distributed tables: there, privileges
-- that the owner takes from itself (at the end) refuse what the triggers refuse.


-- Roles ---------------------------------------------------------------------------------------------------------------
--
-- Two roles of the server, without login, of which login roles are members:
--
-- fairlead_system does the work itself (claims, schedules, bulk loads, administration): its policy admits every row.
-- fairlead_tenant acts for one tenant: a transaction takes the role with `set local role` and names its tenant in a
-- setting of the transaction. Its policies admit the rows of that tenant; without a named tenant, they admit none.

do $$
declare
    name text;
    newer constant boolean := current_setting('server_version_num')::int >= 160000;
begin
    foreach name in array array['fairlead_system', 'fairlead_tenant'] loop
        -- roles belong to the whole server: another database of it may have made them, even at this moment
        begin
            if not exists (select from pg_roles r where r.rolname = name) then
                execute format('create role %I nologin', name);
            end if;
        exception
            when duplicate_object or unique_violation then null;
            when insufficient_privilege then
                raise exception 'the role % is missing, and % may not create it', name, current_user using
                    errcode = 'insufficient_privilege',
                    hint = format('As an administrator: create role %I nologin; grant %I to %I;', name, name, current_user);
        end;
        -- From PostgreSQL 16 on, the creator of a role may administer it, but neither inherits its rights nor may set it.
        begin
            if newer then
                if not (pg_has_role(current_user, name, 'usage') and pg_has_role(current_user, name, 'set')) then
                    execute format('grant %I to current_user with inherit true, set true', name);
                end if;
            elsif not pg_has_role(current_user, name, 'usage') then
                execute format('grant %I to current_user', name);
            end if;
        exception
            when unique_violation then null;
            when insufficient_privilege then
                raise exception '% is not a member of the role %', current_user, name using
                    errcode = 'insufficient_privilege',
                    hint = format('As an administrator: grant %I to %I;', name, current_user);
        end;
        if not pg_has_role(current_user, name, 'usage') then
            raise exception '% does not inherit what the role % may do', current_user, name using
                errcode = 'insufficient_privilege',
                hint = format('As an administrator: alter role %I inherit; and grant %I to it anew.', current_user, name);
        end if;
    end loop;
end
$$;

grant usage on schema fairlead to fairlead_system, fairlead_tenant;
grant select, insert, update, delete on fairlead.migrations, fairlead.function_sources to fairlead_system;
-- and on everything below, and everything that later migrations make
alter default privileges in schema fairlead grant select, insert, update, delete on tables to fairlead_system;
alter default privileges in schema fairlead grant execute on functions to fairlead_system;

\ir ../functions/is_distributed.sql
\ir ../functions/uuid7.sql
\ir ../functions/definition_id.sql
\ir ../functions/tenant_of_session.sql
\ir ../functions/ip_of_session.sql
\ir ../functions/principal_of_session.sql
\ir ../functions/refuse_change.sql
\ir ../functions/refuse_delete.sql
\ir ../functions/refuse_rename.sql
\ir ../functions/touch_definition.sql


-- Tenants and definitions ---------------------------------------------------------------------------------------------
--
-- Jobs refer to tenants and definitions without foreign keys, whose checks would lock these rows in every enqueue.
-- Triggers keep the other half of that promise: the rows are never deleted or renamed.

create table fairlead.tenants (
    id          uuid primary key default fairlead.uuid7(),
    slug        text not null unique,
    name        text not null,
    timezone    text not null default 'UTC',
    weight      integer not null default 1,
    max_running integer,
    -- how many jobs may start in some seconds: see functions/rate_room.sql
    rate        jsonb,
    -- how many jobs may wait, how many jobs a workflow run may lead to, how many triggers and tokens there may be, how
    -- many bytes jobs may take; the setting applies where a tenant has no quota, and 0 means no limit
    quotas      jsonb not null default '{}',
    -- the networks from which its users and tokens may be used; null: any
    addresses   text[],
    paused_at   timestamptz,
    paused_by   text,
    pause_note  text,
    -- whether the tenant lives in this cell: 'here'; 'leaving' and 'arriving' while it is moved to or from another cell;
    -- 'moved' after that: its rows are then in the cell `moved_to`. Only a tenant that is 'here' can be changed
    placement   text not null default 'here',
    moved_to    text,
    -- raised by each move; the directory has the same number
    epoch       bigint not null default 0,
    created_at  timestamptz not null default clock_timestamp(),
    updated_at  timestamptz not null default clock_timestamp(),
    constraint tenants_placement check (placement in ('here', 'leaving', 'arriving', 'moved')),
    constraint tenants_moved_to check ((moved_to is not null) = (placement = 'moved')),
    constraint tenants_slug check (
        slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'
        -- a tenant may be named by id or by slug, so the two must not be confused
        and slug !~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'),
    constraint tenants_addresses check (addresses <> '{}'),
    constraint tenants_name check (name <> '' and length(name) <= 200),
    constraint tenants_weight check (weight between 1 and 1000),
    constraint tenants_max_running check (max_running > 0),
    constraint tenants_quotas check (jsonb_typeof(quotas) = 'object')
);
-- A claim that has passed many pairs in vain leaves out the tenants that are paused or at their limit.
-- See functions/next_pair.sql and functions/full_tenants.sql.
create index tenants_open on fairlead.tenants (id) where paused_at is null;
create index tenants_limited on fairlead.tenants (id) where max_running is not null;
create index tenants_rated on fairlead.tenants (id) where rate is not null;
-- Few: background work leaves out the tenants that are being moved, and lists those that have moved away.
create index tenants_elsewhere on fairlead.tenants (id) where placement <> 'here';

-- not on Citus
create trigger tenants_stay before delete on fairlead.tenants
    for each row execute function fairlead.refuse_delete();
-- not on Citus
create trigger tenants_keep_slug before update of slug on fairlead.tenants
    for each row when (new.slug <> old.slug) execute function fairlead.refuse_rename('slug');

insert into fairlead.tenants (id, slug, name)
    values ('00000000-0000-7000-8000-000000000000', 'global', 'Work that belongs to no tenant');

-- What a tenant was last found to use. Until `roomy_until` single enqueues need not count: filling the room that was
-- left takes at least that long. The duty `stored_bytes` measures `stored_bytes`. See functions/room_of.sql.
create table fairlead.tenant_use (
    tenant_id    uuid primary key,
    roomy_until  timestamptz not null default '-infinity',
    stored_bytes bigint not null default 0,
    measured_at  timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
insert into fairlead.tenant_use (tenant_id) select t.id from fairlead.tenants t;

create table fairlead.job_definitions (
    -- made from the key, so that a definition has the same id in every cell: fairlead.definition_id(key)
    id                      uuid primary key,
    key                     text not null unique,
    version                 integer not null default 1,
    description             text not null default '',
    kind                    text not null default 'function',
    arg_schema              jsonb not null default '{}',
    -- the secret fields of its payloads: paths such as /smtp/password, found in the schema when the definition is put
    secret_paths            text[] not null default '{}',
    -- the tenants that may use it; null: every tenant
    only_tenants            uuid[],
    timeout_seconds         integer not null default 3600,
    max_attempts            integer not null default 3,
    backoff                 jsonb not null
        default '{"base_seconds": 10, "factor": 2, "cap_seconds": 3600, "jitter": 0.1}',
    max_running             integer,
    max_running_per_tenant  integer,
    -- how many jobs may start in some seconds, of all tenants together and of each tenant
    rate                    jsonb,
    rate_per_tenant         jsonb,
    -- limits for the jobs that have the same value in their payloads: see functions/keep_keys.sql
    by_key                  jsonb,
    -- how many of its worker's slots an attempt takes
    slots                   integer not null default 1,
    -- labels that a worker must have, and labels of workers that come first: {"gpu": "true"}, or null
    requires                jsonb,
    prefers                 jsonb,
    default_priority        integer not null default 100,
    resource_pointer        text,
    audit_action            text default 'JOB_SUCCEEDED',
    retention_days          integer,
    is_active               boolean not null default true,
    -- of the kinds delivered and bullmq: the engine, a table of the bridge's fairlead.toml, and the queue there, which may
    -- have placeholders such as {tenant}
    engine                  text,
    queue                   text,
    paused_at               timestamptz,
    paused_by               text,
    pause_note              text,
    created_at              timestamptz not null default clock_timestamp(),
    updated_at              timestamptz not null default clock_timestamp(),
    constraint definitions_key check (key ~ '^[A-Za-z][A-Za-z0-9._-]{0,127}$'),
    constraint definitions_kind check (
        kind in ('function', 'command', 'host', 'workflow', 'delivered', 'bullmq')),
    constraint definitions_engine check (
        case kind when 'delivered' then engine is not null when 'bullmq' then true
            else engine is null and queue is null end),
    constraint definitions_arg_schema check (jsonb_typeof(arg_schema) in ('object', 'boolean')),
    constraint definitions_timeout check (timeout_seconds between 1 and 2592000),
    constraint definitions_max_attempts check (max_attempts between 1 and 1000),
    constraint definitions_max_running check (max_running > 0),
    constraint definitions_slots check (slots between 1 and 10000),
    constraint definitions_max_running_per_tenant check (max_running_per_tenant > 0),
    constraint definitions_retention check (retention_days > 0),
    constraint definitions_backoff check (
        jsonb_typeof(backoff) = 'object'
        and backoff ?& array['base_seconds', 'factor', 'cap_seconds', 'jitter'])
);

-- not on Citus
create trigger definitions_stay before delete on fairlead.job_definitions
    for each row execute function fairlead.refuse_delete();
-- not on Citus
create trigger definitions_keep_key before update of key on fairlead.job_definitions
    for each row when (new.key <> old.key) execute function fairlead.refuse_rename('key');
-- not on Citus: the statements of store do the same
create trigger definitions_version before update on fairlead.job_definitions
    for each row execute function fairlead.touch_definition();

-- What a definition was in its newest versions, for comparison. Pauses and changes of
-- only_tenants raise the version, too, and have no row here.
create table fairlead.definition_versions (
    definition_id uuid not null references fairlead.job_definitions on delete cascade,
    version       integer not null,
    spec          jsonb not null,
    changed_by    text not null,
    changed_at    timestamptz not null default clock_timestamp(),
    primary key (definition_id, version)
);

-- The gate of the whole system: always one row.
create table fairlead.system (
    only_row   boolean primary key default true check (only_row),
    -- names this cell, whatever address leads to it
    cell_id    uuid not null default gen_random_uuid(),
    -- whether there are other cells, so that each has only a part of a definition's max_running: its allotment
    is_allotted boolean not null default false,
    online     boolean not null default true,
    -- how many jobs may start in some seconds
    rate       jsonb,
    -- since when secrets are encrypted; null: they are not
    encrypted_since timestamptz,
    note       text,
    changed_by text,
    changed_at timestamptz not null default clock_timestamp()
);
insert into fairlead.system default values;


-- Hosts and their agents ----------------------------------------------------------------------------------------------

create table fairlead.hosts (
    id            uuid primary key default fairlead.uuid7(),
    tenant_id     uuid not null references fairlead.tenants,
    name          text not null,
    max_running   integer not null default 1,
    labels        jsonb not null default '{}',
    draining      boolean not null default false,
    paused_at     timestamptz,
    paused_by     text,
    pause_note    text,
    last_seen_at  timestamptz,
    agent_version text,
    -- the agent that was started last: an older one is told that another has taken its place
    session_id    uuid,
    session_at    timestamptz,
    created_by    text,
    created_at    timestamptz not null default clock_timestamp(),
    updated_at    timestamptz not null default clock_timestamp(),
    constraint hosts_name unique (name, tenant_id),
    -- for foreign keys that name the tenant, too
    constraint hosts_of_tenant unique (tenant_id, id),
    constraint hosts_max_running check (max_running > 0)
);

-- Things that live on a host, such as a database or a disk. A job that names one is settled on its host when it is
-- enqueued.
create table fairlead.resources (
    id         uuid primary key default fairlead.uuid7(),
    tenant_id  uuid not null references fairlead.tenants,
    host_id    uuid not null references fairlead.hosts,
    kind       text not null,
    name       text not null,
    created_by text,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    constraint resources_name unique (tenant_id, kind, name),
    constraint resources_host_of_tenant foreign key (tenant_id, host_id) references fairlead.hosts (tenant_id, id)
);
create index resources_by_host on fairlead.resources (host_id);
create index resources_by_name on fairlead.resources (name, tenant_id);

-- An agent shows its code once, for the token of its host. Only the hash is kept.
create table fairlead.enrolment_codes (
    code_hash  bytea primary key,
    tenant_id  uuid not null references fairlead.tenants,
    host_id    uuid not null,
    created_by text,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    used_at    timestamptz,
    constraint enrolment_codes_host foreign key (tenant_id, host_id) references fairlead.hosts (tenant_id, id)
);
create index enrolment_codes_by_age on fairlead.enrolment_codes (expires_at);

-- Jobs that were sent to an agent and that it has not confirmed. The answer may have been lost: the next poll gets the
-- same job under the same lease.
create table fairlead.deliveries (
    job_id     uuid primary key,
    attempt_no integer not null,
    token      uuid not null,
    tenant_id  uuid not null,
    host_id    uuid not null
);
create index deliveries_by_host on fairlead.deliveries (host_id);


-- Jobs and the queue --------------------------------------------------------------------------------------------------
--
-- Jobs are the record that people read; ready, later, leases and active_keys are the queue.
--
-- A job is in exactly one of ready, later, leases (queued, queued, running) or in none (terminal). The transaction that
-- deletes the row of the queue owns the transition, and only then changes the job.

-- The order of the labels is used: everything after 'running' is over, everything after 'succeeded' is trouble.
create type fairlead.job_status as enum ('queued', 'running', 'succeeded', 'failed', 'dead_letter', 'canceled');
create type fairlead.job_source as enum ('manual', 'event', 'schedule', 'system');
-- the argument of functions/tell_ends.sql
create type fairlead.job_end as (id uuid, tenant_id uuid, status fairlead.job_status);
-- the argument of functions/add_step_jobs.sql
create type fairlead.step_job as (
    id uuid, run_id uuid, tenant_id uuid, key text, correlation_id text, place integer, item integer, definition_id uuid,
    priority integer, max_attempts integer, timeout integer, name text, payload jsonb, secret_paths text[], host_id uuid,
    resource_id uuid, tags text[], expires_in double precision);

-- No index mentions a column that a successful run changes, predicates included: every update of a run is heap-only,
-- and history costs the queue nothing. No check either: PostgreSQL reads a check anew for every statement, which was a
-- tenth of a single enqueue. That a status and its times fit is a matter of the statements; `fairlead doctor` and the
-- continuous checks verify it (store/consistency.sql).
-- Jobs, as they wait or as they ended. A job that runs has a lease, and its record stays as it was until the attempt
-- ends: so a claim writes no job. The view fairlead.jobs shows the jobs as they are now.
create table fairlead.job_records (
    id                  uuid primary key,
    tenant_id           uuid not null,
    definition_id       uuid not null,
    parent_id           uuid,
    workflow_run_id     uuid,
    host_id             uuid,
    resource_id         uuid,
    priority            integer not null,
    max_attempts        integer not null,
    -- attempts that ended; of the last one also started_at, claimed_by_worker and progress
    attempt_count       integer not null default 0,
    failure_count       integer not null default 0,
    -- Losses that are charged to the job: it was alone on the worker that was lost.
    lost_count          integer not null default 0,
    cost_cents          bigint not null default 0,
    scheduled_for       timestamptz not null,
    queued_at           timestamptz not null default clock_timestamp(),
    started_at          timestamptz,
    finished_at         timestamptz,
    cancel_requested_at timestamptz,
    troubled            boolean not null default false,
    status              fairlead.job_status not null default 'queued',
    source              fairlead.job_source not null default 'manual',
    source_ref          text,
    dedupe_key          text,
    correlation_id      text,
    created_by          text,
    claimed_by_worker   text,
    last_error          text,
    payload             jsonb not null,
    output              jsonb,
    error               jsonb,
    progress            jsonb,
    -- a W3C `traceparent` and, after a blank, the `tracestate` where there is one
    trace               text,
    -- which step of its workflow run the job is, and which item of that step
    workflow_step       integer,
    workflow_item       integer,
    -- instead of the definition's
    timeout_seconds     integer,
    -- secrets that a template put into fields which the definition does not mark
    secret_paths        text[],
    -- Losses beside other jobs of the same worker: not charged.
    suspected           integer not null default 0,
    -- An accused job was the only one that had just begun when its worker was lost, or was charged before: it runs where
    -- nothing else runs.
    accused             boolean not null default false,
    -- the workflow run that led to this job, through jobs and runs in between; null: workflow_run_id
    root_run_id         uuid,
    -- The token of the last attempt, if it succeeded and has no row in job_attempts.
    success_token       uuid,
    -- The hash of the value by which its definition limits jobs (by_key), as it was when the job was enqueued.
    limit_key           uuid,
    -- the same as its rows in job_tags
    tags                text[],
    -- A job that has not started by then is canceled; the same as its row in expiries.
    expires_at          timestamptz
) with (
    -- Room on every page for both versions of a job (waiting, done), also while an old transaction keeps the first one from
    -- being cleared away: the second is heap-only, so that no index is touched.
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
create index jobs_by_tenant on fairlead.job_records (tenant_id, id);
create index jobs_by_definition on fairlead.job_records (tenant_id, definition_id, id);
create index jobs_troubled on fairlead.job_records (tenant_id, id) where troubled;
create index jobs_by_correlation on fairlead.job_records (tenant_id, correlation_id, id) where correlation_id is not null;
-- any length of key must fit an index, hence the hash
create index jobs_by_dedupe_key on fairlead.job_records (tenant_id, hashtextextended(dedupe_key, 0), id)
    where dedupe_key is not null;
create index jobs_by_parent on fairlead.job_records (parent_id) where parent_id is not null;
create index jobs_by_run on fairlead.job_records (workflow_run_id, workflow_step, workflow_item)
    where workflow_run_id is not null;

-- Jobs that can be claimed. The tables of the queue turn over completely: vacuum by a plain threshold, at full speed.
create table fairlead.ready (
    job_id        uuid not null,
    tenant_id     uuid not null,
    definition_id uuid not null,
    host_id       uuid,
    priority      integer not null,
    scheduled_for timestamptz not null,
    limit_key     uuid
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
create unique index ready_by_tenant on fairlead.ready (tenant_id, definition_id, priority, scheduled_for, job_id)
    where host_id is null;
create unique index ready_by_host on fairlead.ready
    (host_id, tenant_id, definition_id, priority, scheduled_for, job_id) where host_id is not null;
-- The tenants that have ready jobs of a definition. A claim that meets many pairs that it may not take goes on from
-- definition to tenant (functions/next_pair.sql). Only for statements that ask for it with `priority > -2147483648`: for
-- a lookup of one job the planner would take it as readily as ready_by_tenant, and read all jobs of the pair.
create index ready_by_definition on fairlead.ready (definition_id, tenant_id)
    where host_id is null and priority > -2147483648;
create index ready_by_key on fairlead.ready (definition_id, tenant_id, limit_key, job_id) where limit_key is not null;

-- Jobs that are due later, and two kinds that wait here even when they are due: suspects of a lost worker, which
-- claim_suspect takes one at a time, and jobs whose key is at its limit.
create table fairlead.later (
    job_id        uuid not null,
    tenant_id     uuid not null,
    definition_id uuid not null,
    host_id       uuid,
    priority      integer not null,
    due_at        timestamptz not null,
    alone         boolean not null default false,  -- a suspect
    -- its key is at its limit: it is due, and waits until release_keys lets it go
    held          boolean not null default false,
    -- a durable function that waits: an event, a signal or the end of a child may wake it earlier
    waits         boolean not null default false,
    limit_key     uuid,
    primary key (due_at, job_id)
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
create index later_by_tenant on fairlead.later (tenant_id, job_id);
create index later_due on fairlead.later (due_at, job_id) where not alone and not held;
create index later_by_key on fairlead.later (definition_id, tenant_id, limit_key, job_id) where limit_key is not null;
create index later_held on fairlead.later (definition_id, tenant_id, limit_key, priority, job_id) where held;
create index later_alone on fairlead.later (tenant_id, definition_id, due_at, job_id) where alone;

-- A lease is (job, attempt, token). expires_at is not indexed, so that a heartbeat is a heap-only update.
create table fairlead.leases (
    job_id          uuid primary key,
    attempt_no      integer not null,
    token           uuid not null,
    worker_id       text not null,
    tenant_id       uuid not null,
    definition_id   uuid not null,
    host_id         uuid,
    started_at      timestamptz not null default clock_timestamp(),
    expires_at      timestamptz not null,
    -- how long the job had been due when the claim took it
    queue_ms        bigint,
    -- of a suspect: until then its worker begins nothing else
    probation_until timestamptz,
    -- what the attempt last reported
    progress        jsonb,
    limit_key       uuid
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
-- Limits count leases by tenant, by definition, and by both.
create index leases_by_tenant on fairlead.leases (tenant_id);
create index leases_by_definition on fairlead.leases (definition_id, tenant_id);
create index leases_by_host on fairlead.leases (host_id) where host_id is not null;
create index leases_by_key on fairlead.leases (definition_id, tenant_id, limit_key) where limit_key is not null;

-- The jobs as they are now. Where a query needs none of the columns that a lease changes, the planner leaves out the join.
create view fairlead.jobs with (security_invoker) as
select r.id, r.tenant_id, r.definition_id, r.parent_id, r.workflow_run_id, r.host_id, r.resource_id, r.priority,
    r.max_attempts, coalesce(l.attempt_no, r.attempt_count) as attempt_count, r.failure_count, r.lost_count, r.cost_cents,
    r.scheduled_for, r.queued_at, coalesce(l.started_at, r.started_at) as started_at, r.finished_at, r.cancel_requested_at,
    r.troubled, case when l.job_id is null then r.status else 'running' end as status, r.source, r.source_ref, r.dedupe_key,
    r.correlation_id, r.created_by, coalesce(l.worker_id, r.claimed_by_worker) as claimed_by_worker, r.last_error, r.payload,
    r.output, r.error, case when l.job_id is null then r.progress else l.progress end as progress, r.trace, r.workflow_step,
    r.workflow_item, r.timeout_seconds, r.secret_paths, r.suspected, r.accused, r.root_run_id,
    l.expires_at as lease_expires_at, r.tags, r.expires_at
from fairlead.job_records r left join fairlead.leases l on l.job_id = r.id;

-- The running attempts that a delivery engine carries to workers elsewhere. Any bridge process that serves the engine renews
-- their leases, so a bridge that dies leaves no attempt behind. A row whose lease is gone means nothing: a bridge removes it.
create table fairlead.handovers (
    job_id         uuid primary key,
    attempt_no     integer not null,
    token          uuid not null,
    engine         text not null,
    queue          text not null,
    -- null: the engine has not confirmed that it has it
    handed_over_at timestamptz,
    -- when the engine was told to stop it
    stopped_at     timestamptz
) with (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
create index handovers_by_engine on fairlead.handovers (engine);

-- At most one queued or running job per (tenant, dedupe key).
create table fairlead.active_keys (
    tenant_id    uuid not null,
    key_hash     bytea not null,
    job_id       uuid not null,
    -- The key stays taken until then, even if its job has ended. After that, the next enqueue takes it over.
    unique_until timestamptz,
    primary key (tenant_id, key_hash)
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);
create index active_keys_until on fairlead.active_keys (unique_until, tenant_id, key_hash) where unique_until is not null;

-- The jobs of each tag, in the order of their ids. Only jobs with tags have rows.
create table fairlead.job_tags (
    tenant_id uuid not null,
    tag       text not null,
    job_id    uuid not null,
    primary key (tenant_id, tag, job_id)
);

-- When jobs expire that have to start in time. A row stays until then, whatever its job does: see store/expiry.sql.
create table fairlead.expiries (
    expires_at timestamptz not null,
    job_id     uuid not null,
    tenant_id  uuid not null,
    primary key (expires_at, job_id)
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);
create index expiries_by_tenant on fairlead.expiries (tenant_id);

-- The waiting job of each debounced key. A row is the lock under which enqueues of its key take turns. It means nothing when
-- its job has started or ended: see functions/debounce_job.sql.
create table fairlead.debounces (
    tenant_id uuid not null,
    key_hash  bytea not null,
    job_id    uuid not null,
    first_at  timestamptz not null,
    due_at    timestamptz not null,
    primary key (tenant_id, key_hash)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);

-- Slot 0 of a limited scope is its lock, taken before its leases are counted; never the tenants or definitions rows,
-- which enqueues read. A large limit also has slots: rows whose holders may claim at the same time, each at most `worth`
-- jobs. See functions/budgets.sql.
create table fairlead.limit_locks (
    scope    text not null,
    scope_id uuid not null,
    other_id uuid not null default '00000000-0000-0000-0000-000000000000',
    slot     smallint not null default 0,
    worth    integer not null default 0,
    primary key (scope, scope_id, other_id, slot),
    constraint limit_locks_scope check (scope in ('tenant', 'definition', 'definition_tenant', 'host'))
);

-- The keys that jobs run of or wait for: a row is the lock under which the jobs of its key are counted, let go or held back.
create table fairlead.key_locks (
    definition_id uuid not null,
    tenant_id     uuid not null,
    limit_key     uuid not null,
    primary key (definition_id, tenant_id, limit_key)
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- The token bucket of each scope with a rate. It holds `burst` tokens when it is full, and each start takes one. A row has
-- the tokens that the last start left, and its time: the rest follows from the rate, which may be changed at any time.
--
-- The scope is a definition, a tenant, both, both and a key, or (none of them) the system: zeros stand for all.
create table fairlead.rate_buckets (
    definition_id uuid not null,
    tenant_id     uuid not null,
    limit_key     uuid not null default '00000000-0000-0000-0000-000000000000',
    tokens        double precision not null default 'infinity',
    counted_at    timestamptz not null default clock_timestamp(),
    -- the tokens that the first waiting job needs, if its cost is more than one
    needed        double precision not null default 1,
    -- of a rate by key: when jobs that it holds back may go on
    wake_at       timestamptz,
    primary key (definition_id, tenant_id, limit_key)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
create index rate_buckets_wake on fairlead.rate_buckets (wake_at) where wake_at is not null;


-- Workers -------------------------------------------------------------------------------------------------------------

create table fairlead.job_workers (
    worker_id     text primary key,
    -- of a worker over HTTP whose token is for one tenant
    tenant_id     uuid references fairlead.tenants,
    hostname      text not null,
    version       text not null default '',
    queues        text[] not null default '{}',
    started_at    timestamptz not null default clock_timestamp(),
    last_seen_at  timestamptz not null default clock_timestamp(),
    running_count integer not null default 0,
    concurrency   integer not null default 0,
    labels        jsonb not null default '{}',
    metadata      jsonb not null default '{}',
    -- asked to claim nothing more; the worker reads it when it reports
    drain_requested_at timestamptz,
    drain_requested_by text
) with (fillfactor = 50);
create index job_workers_of_tenant on fairlead.job_workers (tenant_id) where tenant_id is not null;

-- A claim over HTTP that the worker gave an id, and the jobs that it took. Written with the leases: a worker that lost
-- the answer asks again under the same id and gets the same jobs. Kept for an hour or two.
create table fairlead.worker_claims (
    worker_id text not null,
    claim_id  uuid not null,
    -- of all leases that the claim took
    token     uuid not null,
    jobs      uuid[] not null,
    -- the worker has asked again, so it may run the jobs: the server no longer gives them back
    repeated  boolean not null default false,
    made_at   timestamptz not null default clock_timestamp(),
    primary key (worker_id, claim_id)
);
create index worker_claims_made on fairlead.worker_claims (made_at);

-- The workers that lost a lease, for a day: leases of one worker end at slightly different times. A worker that is seen
-- again was only cut off, and its job is not to blame.
create table fairlead.lost_workers (
    worker_id       text primary key,
    -- the latest end of a lease that was lost
    expired_at      timestamptz not null,
    -- whether one job was accused of it
    blamed          boolean not null,
    -- the job that was charged with it
    charged_job     uuid,
    charged_attempt integer
);


-- Attempts and logs ---------------------------------------------------------------------------------------------------

-- Attempts that ended. The running attempt of a job is its lease: an attempt is written once, when it ends. An attempt that
-- succeeded, with neither a log nor a cost, has no row here: the record of its job says everything.
create table fairlead.job_attempts (
    job_id      uuid not null,
    attempt_no  integer not null,
    tenant_id   uuid not null,
    token       uuid not null,
    worker_id   text not null,
    pid         integer,
    status      text not null,
    started_at  timestamptz not null,
    finished_at timestamptz not null,
    -- how long the job had been due when this attempt's claim took it
    queue_ms    bigint,
    duration_ms bigint,
    exit_code   integer,
    signal      integer,
    cost_cents  bigint not null default 0,
    error_text  text,
    stdout_tail text,
    stderr_tail text,
    primary key (job_id, attempt_no),
    constraint attempts_number check (attempt_no > 0),
    constraint attempts_status check (
        status in ('succeeded', 'failed', 'timeout', 'canceled', 'lost', 'released'))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

\ir ../functions/attempt_id.sql

-- All attempts: with those that run, and those that succeeded.
create view fairlead.attempts with (security_invoker) as
select fairlead.attempt_id(a.job_id, a.attempt_no) as id, a.job_id, a.attempt_no, a.tenant_id, a.token, a.worker_id,
    a.pid, a.status, a.started_at, a.finished_at, a.queue_ms, a.duration_ms, a.exit_code, a.signal, a.cost_cents,
    a.error_text, a.stdout_tail, a.stderr_tail
from fairlead.job_attempts a
union all
select fairlead.attempt_id(l.job_id, l.attempt_no), l.job_id, l.attempt_no, l.tenant_id, l.token, l.worker_id,
    null, 'running', l.started_at, null, l.queue_ms, null, null, null, 0, null, null, null
from fairlead.leases l
union all
select fairlead.attempt_id(r.id, r.attempt_count), r.id, r.attempt_count, r.tenant_id, r.success_token, r.claimed_by_worker,
    null, 'succeeded', r.started_at, r.finished_at,
    greatest(0, date_part('epoch', r.started_at - greatest(r.scheduled_for, r.queued_at)) * 1000)::bigint,
    greatest(0, date_part('epoch', r.finished_at - r.started_at) * 1000)::bigint, null, null, 0, null, null, null
from fairlead.job_records r where r.success_token is not null;

-- The output of an attempt while it runs. See functions/append_log.sql.
create table fairlead.log_chunks (
    job_id     uuid not null,
    attempt_no integer not null,
    seq        integer not null,
    tenant_id  uuid not null,
    stream     text not null default 'stdout',
    at         timestamptz not null default clock_timestamp(),
    text       text not null,
    primary key (job_id, attempt_no, seq),
    constraint log_chunks_stream check (stream in ('stdout', 'stderr', 'log'))
);


-- Error groups --------------------------------------------------------------------------------------------------------
--
-- A failed or dead-lettered job belongs to the group of its tenant, its definition and the pattern of its error. The
-- transaction in which a job fails leaves a row in `failures`; the duty `failures` adds the job to its group within
-- seconds. A job leaves its group when it is retried, discarded or removed. See store/error_groups.sql.

create table fairlead.failures (
    job_id     uuid not null,
    attempt_no integer not null,
    tenant_id  uuid not null
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);

create table fairlead.error_groups (
    id            uuid primary key default fairlead.uuid7(),
    tenant_id     uuid not null,
    definition_id uuid not null,
    -- SHA-256 of the pattern, which may be too long for an index
    fingerprint   bytea not null,
    -- the first line of the error, without numbers and ids
    pattern       text not null,
    -- the newest error in full; secrets are masked
    sample        text not null,
    first_seen    timestamptz not null,
    last_seen     timestamptz not null,
    -- the version that the definition had then
    first_version integer not null,
    last_version  integer not null,
    last_job_id   uuid not null,
    -- failures since the beginning
    seen          bigint not null,
    -- jobs that are in the group now: these numbers plus the rows of error_group_changes
    failed        bigint not null,
    dead_letter   bigint not null,
    -- muted: until a time, until the definition has another version, or until it is unmuted
    muted_at      timestamptz,
    muted_by      text,
    muted_until   timestamptz,
    muted_version integer,
    mute_note     text,
    discarded_at  timestamptz,
    discarded_by  text,
    constraint error_groups_fingerprint unique (tenant_id, definition_id, fingerprint)
) with (fillfactor = 70);
create index error_groups_by_tenant on fairlead.error_groups (tenant_id, last_seen);
-- Only for statements that ask for it with `seen > 0`: for one tenant the planner would read the groups of all.
create index error_groups_by_time on fairlead.error_groups (last_seen) where seen > 0;

create table fairlead.error_group_hours (
    group_id  uuid not null,
    hour      timestamptz not null,
    tenant_id uuid not null,
    failures  bigint not null,
    primary key (group_id, hour)
) with (fillfactor = 70);
create index error_group_hours_by_age on fairlead.error_group_hours (hour);

-- The jobs that are in a group now.
create table fairlead.error_group_jobs (
    job_id    uuid primary key,
    group_id  uuid not null,
    tenant_id uuid not null,
    status    fairlead.job_status not null,
    failed_at timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
create index error_group_jobs_by_time on fairlead.error_group_jobs (group_id, status, failed_at, job_id);

-- Jobs that left a group, appended so that no retry waits for another: the duty `failures` subtracts them. Each statement
-- that deletes from error_group_jobs appends here.
create table fairlead.error_group_changes (
    group_id    uuid not null,
    tenant_id   uuid not null,
    failed      bigint not null,
    dead_letter bigint not null
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);
create index error_group_changes_by_group on fairlead.error_group_changes (group_id);


-- Counts and usage ----------------------------------------------------------------------------------------------------

-- Changes of levels, appended by the statements that change jobs: one row per tenant, definition and batch. A level is
-- count_levels plus the rows that are not `leveled`, read by one statement.
--
-- A row with `runs` was written by the statement that ended these runs: the status columns say what became of their
-- jobs, the run columns what the runs used. Folding such a row adds it to usage_hourly in the same statement and empties
-- its run columns. So the sum over both tables is, at any moment, the sum over all attempts that ever ended.
create table fairlead.counts (
    tenant_id     uuid not null,
    definition_id uuid not null,
    minute        timestamptz not null,
    queued        bigint not null default 0,
    running       bigint not null default 0,
    succeeded     bigint not null default 0,
    failed        bigint not null default 0,
    dead_letter   bigint not null default 0,
    canceled      bigint not null default 0,
    runs          integer,
    retried       integer,
    run_ms        bigint,
    queue_ms      bigint,
    cost_cents    bigint,
    lost          integer,
    leveled       boolean not null default false
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
-- One index, since every change of a job adds a row: it finds the rows of a tenant that are not leveled and, with
-- `leveled in (false, true)`, all of its minutes.
create index counts_by_level on fairlead.counts (leveled, tenant_id, minute);

create table fairlead.count_levels (
    tenant_id        uuid not null,
    definition_id    uuid not null,
    queued           bigint not null default 0,
    running          bigint not null default 0,
    succeeded        bigint not null default 0,
    failed           bigint not null default 0,
    dead_letter      bigint not null default 0,
    canceled         bigint not null default 0,
    -- since the beginning: runs that ended, what became of their jobs, and how many of them were lost
    runs             bigint not null default 0,
    runs_succeeded   bigint not null default 0,
    runs_failed      bigint not null default 0,
    runs_dead_letter bigint not null default 0,
    runs_retried     bigint not null default 0,
    runs_lost        bigint not null default 0,
    primary key (tenant_id, definition_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- How many jobs retention has removed: the sum of the rows. The levels plus these are all jobs that were ever enqueued.
create table fairlead.removed_jobs (
    tenant_id     uuid not null,
    definition_id uuid not null,
    jobs          bigint not null
);
create index removed_jobs_by_tenant on fairlead.removed_jobs (tenant_id, definition_id);

-- Every attempt that ended is a run, added up by tenant, definition and hour, and kept when the attempt is removed. The
-- status columns say what became of the jobs of these runs; the rest were given back.
create table fairlead.usage_hourly (
    tenant_id     uuid not null,
    definition_id uuid not null,
    hour          timestamptz not null,
    runs          bigint not null,
    succeeded     bigint not null,
    failed        bigint not null,
    dead_letter   bigint not null,
    canceled      bigint not null,
    retried       bigint not null,
    run_ms        bigint not null,
    queue_ms      bigint not null,
    cost_cents    bigint not null,
    primary key (tenant_id, hour, definition_id)
) with (fillfactor = 70);
create index usage_hourly_by_hour on fairlead.usage_hourly (hour);

-- Up to which hour a tenant's usage.recorded events have been emitted.
create table fairlead.usage_told (
    tenant_id uuid primary key,
    until     timestamptz not null
);


-- Triggers and events -------------------------------------------------------------------------------------------------
--
-- An event is stored before it is acted on. events_waiting holds those not yet dispatched: the transaction that deletes
-- a row there dispatches that event. A schedule fires next at next_fire_at of its trigger: the transaction that
-- has locked that row fires it and moves it on. trigger_firings admits one row for each trigger and instant or event, so
-- that even a mistake in all of this does not fire twice.

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
    end_at                timestamptz,     -- no instant at or after it
    jitter_seconds        integer,         -- each firing is later than its instant by a random part of this
    definition_id         uuid not null references fairlead.job_definitions on delete restrict,
    payload_template      jsonb not null default '{}',
    job_options           jsonb not null default '{}',
    dedupe_window_seconds integer not null default 0,
    catch_up              text not null default 'skip',
    overlap               text not null default 'allow',
    -- of a schedule that an application's code declares: the application, and the schedule's name there
    owner                 text,
    name                  text,
    next_fire_at          timestamptz,     -- null: never (events, disabled, deleted, over)
    next_delay            interval not null default '0',  -- the jitter of next_fire_at: its instant is earlier by this
    last_fired_at         timestamptz,
    created_by            text,
    created_at            timestamptz not null default clock_timestamp(),
    updated_at            timestamptz not null default clock_timestamp(),
    deleted_at            timestamptz,
    constraint job_triggers_form check (
        case trigger_type
            when 'event' then event_name is not null and cron_expr is null and timezone is null
                and every_seconds is null and start_at is null and end_at is null and jitter_seconds is null
                and next_fire_at is null
            when 'schedule' then event_name is null and filter = '{}'
                and (cron_expr is not null and every_seconds is null and start_at is null
                    or cron_expr is null and timezone is null and every_seconds is not null and start_at is not null)
            else false
        end),
    constraint job_triggers_every check (every_seconds between 0 and 31622400),
    constraint job_triggers_end check (end_at > start_at),
    constraint job_triggers_jitter check (jitter_seconds between 0 and 86400),
    constraint job_triggers_window check (dedupe_window_seconds between 0 and 2592000),
    constraint job_triggers_catch_up check (catch_up in ('skip', 'one', 'all')),
    constraint job_triggers_overlap check (overlap in ('skip', 'allow')),
    constraint job_triggers_owner check ((owner is null) = (name is null)),
    constraint job_triggers_idle check (next_fire_at is null or (is_enabled and deleted_at is null))
) with (fillfactor = 70);
create index job_triggers_due on fairlead.job_triggers (next_fire_at) where next_fire_at is not null;
create index job_triggers_by_event on fairlead.job_triggers (tenant_id, event_name)
    where event_name is not null and is_enabled and deleted_at is null;
-- Nearly empty: the statements that end jobs look here for triggers on that end.
create index job_triggers_of_ends on fairlead.job_triggers (tenant_id, event_name)
    where event_name like 'job.%' and is_enabled and deleted_at is null;
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
    -- where in the data triggers found secrets: they stay hidden when those triggers are gone
    secret_paths    text[] not null default '{}',
    created_by      text,
    -- the job that emitted the event, or whose end it reports
    caused_by       uuid,
    -- the triggers that led to that job, the first one first: a trigger that is in it would fire in a circle
    lineage         uuid[] not null default '{}'
) with (fillfactor = 85);
create index events_by_tenant on fairlead.events (tenant_id, id);
create index events_by_age on fairlead.events (recorded_at);
-- A wait for an event looks for those that came before it.
create index events_by_name on fairlead.events (tenant_id, name, id);

create table fairlead.events_waiting (
    event_id  uuid primary key,
    tenant_id uuid not null,
    due_at    timestamptz not null default clock_timestamp(),
    tries     integer not null default 0,
    -- How large its data is in memory; 0: small.
    data_bytes integer not null default 0,
    -- Of an event that is dispatched in parts: the last wait of a durable function that it was compared with.
    progress  jsonb
);
create index events_waiting_due on fairlead.events_waiting (due_at, event_id);
-- Events are dispatched in turns, too: this finds the first event of each tenant.
create index events_waiting_by_tenant on fairlead.events_waiting (tenant_id, due_at, event_id);

-- Sources of events: connections to brokers, as fairlead.toml describes them to the processes that consume from them.
-- These processes keep the row up to date; users pause it.
create table fairlead.sources (
    name            text primary key,
    driver          text not null,
    tenant_id       uuid references fairlead.tenants,  -- null: each message names its tenant
    event           text not null,
    messages        bigint not null default 0,         -- that became events
    duplicates      bigint not null default 0,
    refused         bigint not null default 0,
    last_message_at timestamptz,
    last_refusal    text,                  -- the last refused message's reason: a stable code
    failing_since   timestamptz,
    last_error      text,
    paused_at       timestamptz,
    paused_by       text,
    pause_note      text,
    seen_at         timestamptz not null default clock_timestamp(),
    created_at      timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- The ids of messages that became events: the transaction that inserts an id emits its event.
create table fairlead.source_messages (
    source     text not null,
    message_id text not null,
    expires_at timestamptz not null,
    primary key (source, message_id)
);
create index source_messages_by_age on fairlead.source_messages (expires_at);

create table fairlead.trigger_firings (
    id           uuid primary key default fairlead.uuid7(),
    trigger_id   uuid not null references fairlead.job_triggers,
    tenant_id    uuid not null,
    slot         text not null,            -- the instant, 'backfill:' and the instant, the event's id, or 'manual:' and an id
    scheduled_at timestamptz,
    event_id     uuid,
    outcome      text not null,
    job_id       uuid,                     -- the job that was made, or the one that it is a duplicate of
    reason       text,                     -- a stable code
    detail       text,
    -- instants that catch_up leaves out share one record: how many (null: not counted), and the last of them
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

-- Within dedupe_window_seconds, the same trigger and payload make one job: this row names it.
create table fairlead.dedupe_windows (
    tenant_id  uuid not null,
    hash       bytea not null,
    job_id     uuid not null,
    expires_at timestamptz not null,
    primary key (tenant_id, hash)
);
create index dedupe_windows_by_age on fairlead.dedupe_windows (expires_at);


-- Workflows -----------------------------------------------------------------------------------------------------------
--
-- Graphs of jobs. The steps of a run are rows of workflow_steps. A step becomes its jobs when the last step before it is
-- over, in the transaction that ended that one: nothing polls. The transaction that ends a job of a run counts down,
-- under the lock of the run's row, how many steps the next one still waits for. See functions/move_on.sql.

-- Versions never change: a spec that differs is a new version. is_shared: of the tenant `global`, for every tenant.
create table fairlead.workflows (
    id           uuid primary key default fairlead.uuid7(),
    tenant_id    uuid not null references fairlead.tenants,
    is_shared    boolean not null default false,
    key          text not null,
    version      integer not null,
    spec         jsonb not null,
    -- where in a run's input secrets are
    secret_paths text[] not null default '{}',
    created_by   text,
    created_at   timestamptz not null default clock_timestamp(),
    constraint workflows_version unique (tenant_id, key, version),
    -- every tenant reads shared workflows: only the tenant `global` may have them
    constraint workflows_shared check (not is_shared or tenant_id = '00000000-0000-7000-8000-000000000000')
);

create table fairlead.workflow_runs (
    id                  uuid primary key,
    tenant_id           uuid not null references fairlead.tenants,
    workflow_id         uuid references fairlead.workflows,  -- null: written for this run alone
    key                 text not null,
    version             integer,
    status              text not null default 'running',
    steps               integer not null,
    live                integer not null default 0,          -- steps that have jobs which are not over
    failing             boolean not null default false,      -- no more steps are released
    cancel_requested_at timestamptz,
    -- the job that waits for this run, and whether it has been told how the run ended
    parent_job_id       uuid,
    answered            boolean not null default false,
    -- The run ended while another transaction held the row of that job. That transaction may roll back, and then the job
    -- would sleep on: the duty `sleepers` wakes it.
    parent_asleep       boolean not null default false,
    -- the job that started the run: parent_job_id, or a job that did not wait
    started_by_job      uuid,
    -- how many runs wait for this one, each within the next: a workflow that runs itself comes to an end
    depth               integer not null default 0,
    -- the run that everything began with; null: this one
    root_run_id         uuid,
    unique_key          text,
    correlation_id      text,
    input               jsonb not null,
    output_template     jsonb,
    output              jsonb,
    error               jsonb,
    secret_paths        text[] not null default '{}',
    created_by          text,
    created_at          timestamptz not null default clock_timestamp(),
    finished_at         timestamptz,
    constraint workflow_runs_life check (
        status in ('running', 'succeeded', 'failed', 'canceled')
        and (status = 'running') = (finished_at is null) and live >= 0)
) with (fillfactor = 50);
create index workflow_runs_by_tenant on fairlead.workflow_runs (tenant_id, id);
create index workflow_runs_by_key on fairlead.workflow_runs (tenant_id, key, id);
create index workflow_runs_by_parent on fairlead.workflow_runs (parent_job_id) where parent_job_id is not null;
create unique index workflow_runs_by_unique_key on fairlead.workflow_runs (tenant_id, unique_key)
    where unique_key is not null;
create index workflow_runs_parent_asleep on fairlead.workflow_runs (id) where parent_asleep;
-- Runs that are over and that a job waited for: the continuous checks look for jobs that still wait.
create index workflow_runs_over on fairlead.workflow_runs (finished_at)
    where parent_job_id is not null and status <> 'running';

create table fairlead.workflow_steps (
    run_id          uuid not null references fairlead.workflow_runs on delete cascade,
    place           integer not null,
    tenant_id       uuid not null,
    name            text not null,
    definition_key  text not null,
    spec            jsonb not null,
    -- Of a step that is one job with the payload of the spec: the version of the definition that accepts this payload.
    -- While that is the current version, functions/release_steps.sql creates the job.
    checked_version integer,
    before          integer[] not null,              -- the places of the steps it waits for
    next            integer[] not null,              -- and of those that wait for it
    on_failure      text not null,
    compensation    integer,                         -- the step that runs when this one fails
    is_compensation boolean not null default false,
    state           text not null default 'waiting',
    pending         integer not null,                -- how many of those before it are not over
    ran             integer not null default 0,      -- how many of them were not skipped
    items           integer,                         -- of a step for each item: how many there are
    remaining       integer not null default 0,      -- jobs that are not over
    failed          integer not null default 0,
    canceled        integer not null default 0,
    error           jsonb,                           -- why it could not be released
    -- Of a running step without jobs: since when they wait to be made. Much work is not done with the end of another job.
    left_at         timestamptz,
    started_at      timestamptz,
    finished_at     timestamptz,
    primary key (run_id, place),
    -- in this order, so that the planner never uses it to look up a place
    constraint workflow_steps_name unique (name, run_id),
    constraint workflow_steps_life check (
        state in ('waiting', 'running', 'succeeded', 'failed', 'canceled', 'skipped', 'stopped')
        and (state = 'running') = (remaining > 0) and pending >= 0)
) with (fillfactor = 60);

create index workflow_steps_left on fairlead.workflow_steps (tenant_id, left_at) where left_at is not null;

-- How many jobs a root run has led to: the sum of its rows. Appended, so that runs below it do not wait for each other.
create table fairlead.run_jobs (
    root_run_id uuid not null,
    tenant_id   uuid not null,
    jobs        bigint not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
create index run_jobs_by_root on fairlead.run_jobs (root_run_id);

-- Jobs of steps that ended in a transaction which cannot advance the run: that of their handler, or of a worker without the
-- key of the run's secrets. The transaction that deletes the row does that. Notified workers take them at once; the duty `sleepers` takes those that are left.
create table fairlead.ended_steps (
    job_id    uuid primary key,
    tenant_id uuid not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);


-- Durable functions --------------------------------------------------------------------------------------------------
--
-- A row for each step, sleep, wait and call that a durable function has asked for, by its place: the branch ('' outside
-- of ctx.gather) and its number in that branch. Only the attempt that owns the lease writes it; and a wait is completed by
-- the event, the signal or the end of the child that it waits for, under the lock of the job's record.

create table fairlead.job_steps (
    job_id      uuid not null,
    position    integer not null,
    -- the last attempt that wrote the row or got its result; 0: the end of a child that no attempt has seen, or a replay's copy
    attempt_no  integer not null,
    -- 'waiting'; 'succeeded'; 'retry': failed, and runs again unless the function goes on after the failure; 'failed': the
    -- function went on; 'timeout': the wait is over without a result
    status      text not null,
    kind        text not null,
    name        text not null,
    branch      text not null default '',
    tenant_id   uuid not null,
    tries       integer not null default 1,
    started_at  timestamptz not null,
    ended_at    timestamptz,
    -- the end of a sleep or of a pause before the next try, or the timeout of a wait
    due_at      timestamptz,
    child_id    uuid,
    -- of a wait for an event whose filter compares a field with a value: the hash of both
    match_key   uuid,
    -- whether people see the result
    secret      boolean not null default false,
    -- what a wait was asked for with: a filter, for instance
    request     jsonb,
    -- as text: the attempt that runs a step and every replay get the same order of names and the same numbers
    result      json,
    error       jsonb,
    primary key (job_id, branch, position),
    constraint job_steps_status check (status in ('waiting', 'succeeded', 'retry', 'failed', 'timeout'))
) with (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0
);
create index job_steps_waiting_for_events on fairlead.job_steps (tenant_id, name, match_key, job_id, branch, position)
    where kind = 'event' and status = 'waiting';
create index job_steps_waiting_for_children on fairlead.job_steps (child_id) where child_id is not null and status = 'waiting';

-- Signals to durable functions, also those that came before the function waited for them.
create table fairlead.job_signals (
    id        uuid primary key default fairlead.uuid7(),
    job_id    uuid not null,
    tenant_id uuid not null,
    name      text not null,
    data      jsonb,
    sent_by   text not null,
    sent_at   timestamptz not null default clock_timestamp(),
    taken_at  timestamptz
);
create index job_signals_by_job on fairlead.job_signals (job_id, name, id);

-- Approvals for which durable functions wait. 'open' holds while the wait does: see store/approvals.sql, which shows an
-- approval whose job has ended, or whose step was forgotten, as 'canceled'. The wait's request names the approval.
create table fairlead.approvals (
    id           uuid primary key,
    tenant_id    uuid not null,
    job_id       uuid not null,
    branch       text not null,
    position     integer not null,
    name         text not null,
    title        text not null,
    description  text,
    -- a JSON Schema of the answer's values
    form         jsonb,
    -- who may answer, besides super admins
    roles        text[] not null,
    status       text not null default 'open',
    requested_at timestamptz not null default clock_timestamp(),
    due_at       timestamptz,
    -- the event that is emitted at escalate_at unless it was answered, and when that was done
    escalate     text,
    escalate_at  timestamptz,
    escalated_at timestamptz,
    answered_at  timestamptz,
    answered_by  text,
    comment      text,
    answer       jsonb,
    constraint approvals_status check (status in ('open', 'approved', 'rejected', 'expired'))
) with (fillfactor = 80);
create index approvals_by_tenant on fairlead.approvals (tenant_id, id);
create index approvals_open on fairlead.approvals (tenant_id, id) where status = 'open';
-- of all tenants
create index approvals_open_anywhere on fairlead.approvals (id) where status = 'open';
create index approvals_by_job on fairlead.approvals (job_id, id);
create index approvals_to_escalate on fairlead.approvals (escalate_at)
    where escalate_at is not null and escalated_at is null and status in ('open', 'expired');

-- Children of durable functions that have ended: their parents are told after the commit. And functions that were canceled
-- while they waited for children: these are canceled after the commit.
create table fairlead.ended_children (
    job_id    uuid primary key,
    tenant_id uuid not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);


-- Users, tokens, requests ---------------------------------------------------------------------------------------------

create table fairlead.users (
    id            uuid primary key default fairlead.uuid7(),
    tenant_id     uuid references fairlead.tenants,
    email         text not null,
    -- null: the user signs in without a password of ours
    password_hash text,
    role          text not null,
    created_by    text,
    created_at    timestamptz not null default clock_timestamp(),
    updated_at    timestamptz not null default clock_timestamp(),
    disabled_at   timestamptz,
    -- since when the identity provider names another tenant or role for the person, or the only identity was unlinked:
    -- without a password, the user cannot come back until a sign-in with a provider leads here again
    left_at       timestamptz,
    -- how the console shows times to the user; null: as the browser does
    timezone      text,
    hour_cycle    text,
    constraint users_hour_cycle check (hour_cycle in ('h12', 'h23')),
    constraint users_role check (role in ('viewer', 'operator', 'tenant_admin', 'super_admin')),
    -- a super admin belongs to no tenant, every other user to one
    constraint users_tenant check ((role = 'super_admin') = (tenant_id is null))
);
-- An address is taken within a tenant (or among the super admins), not everywhere: whether another tenant knows it must
-- not show.
create unique index users_email on fairlead.users
    (lower(email), coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'::uuid));
create index users_by_tenant on fairlead.users (tenant_id, id);

-- Sign-ins of the console. Only the hash of the cookie's secret is kept.
create table fairlead.sessions (
    secret_hash  bytea primary key,
    -- by which its user names it
    id           uuid not null default fairlead.uuid7() unique,
    user_id      uuid not null references fairlead.users,
    tenant_id    uuid,
    created_at   timestamptz not null default clock_timestamp(),
    expires_at   timestamptz not null,
    -- when it ends if it is not used until then; null: it has no idle timeout
    idle_ends_at timestamptz,
    -- written once a minute at most
    last_seen_at timestamptz not null default clock_timestamp(),
    revoked_at   timestamptz,
    ip           inet default fairlead.ip_of_session(),
    user_agent   text,
    -- what the user proved: a password, a password and a code of the second factor, or an identity at a provider
    proof        text not null default 'password',
    constraint sessions_proof check (proof in ('password', 'code', 'provider'))
);
create index sessions_by_user on fairlead.sessions (user_id);

-- Second factors of passwords. Without `confirmed_at` the set-up is not finished, and the sign-in asks for no code.
create table fairlead.second_factors (
    user_id         uuid primary key references fairlead.users,
    tenant_id       uuid,
    -- the key of the codes, sealed
    secret          text not null,
    created_at      timestamptz not null default clock_timestamp(),
    confirmed_at    timestamptz,
    -- the time step of the last accepted code: neither it nor an earlier one is accepted again
    last_step       bigint,
    recovery_hashes bytea[] not null default '{}'
);

-- Sign-ins in a browser that wait for a code, after the right password. Only the hash of the cookie's secret is kept.
create table fairlead.pending_sign_ins (
    secret_hash     bytea primary key,
    user_id         uuid not null references fairlead.users,
    tenant_id       uuid,
    -- any change of the user ends it
    user_updated_at timestamptz not null,
    tries           integer not null default 0,
    created_at      timestamptz not null default clock_timestamp(),
    expires_at      timestamptz not null
);
create index pending_sign_ins_by_user on fairlead.pending_sign_ins (user_id);

-- Links in mails with which people set a password. Only the hash of a link's secret is kept.
create table fairlead.account_links (
    secret_hash     bytea primary key,
    user_id         uuid not null references fairlead.users,
    tenant_id       uuid,
    purpose         text not null,
    created_by      text,
    created_at      timestamptz not null default clock_timestamp(),
    expires_at      timestamptz not null,
    -- when the user was changed last: every later change ends the link
    user_updated_at timestamptz not null,
    used_at         timestamptz,
    -- replaced by another link, or withdrawn
    revoked_at      timestamptz,
    constraint account_links_purpose check (purpose in ('invitation', 'reset'))
);
create unique index account_links_live on fairlead.account_links (user_id, purpose) where used_at is null and revoked_at is null;
create index account_links_by_expiry on fairlead.account_links (expires_at);

-- The jobs of the tenant global that carry such links, until they have ended and the links are removed from their payloads.
create table fairlead.account_mails (
    job_id     uuid primary key,
    created_at timestamptz not null default clock_timestamp()
);

-- People whom an identity provider has identified, by issuer and subject. In each tenant a person is another user.
create table fairlead.identities (
    -- by which people name it
    id              uuid not null default fairlead.uuid7() unique,
    user_id         uuid not null references fairlead.users,
    tenant_id       uuid,
    issuer          text not null,
    subject         text not null,
    provider        text not null,         -- its name in fairlead.toml
    created_at      timestamptz not null default clock_timestamp(),
    last_sign_in_at timestamptz not null default clock_timestamp(),
    -- a user is one person at an issuer
    primary key (user_id, issuer)
);
create unique index identities_person on fairlead.identities
    (issuer, subject, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'::uuid));

-- Sessions that began with an identity provider, which may end them.
create table fairlead.oidc_sessions (
    secret_hash bytea primary key references fairlead.sessions on delete cascade,
    tenant_id   uuid,
    user_id     uuid not null,
    issuer      text not null,
    provider    text not null,
    sid         text                       -- the provider's own session
);
create index oidc_sessions_by_sid on fairlead.oidc_sessions (issuer, sid) where sid is not null;
create index oidc_sessions_by_user on fairlead.oidc_sessions (user_id);

-- Sign-ins with an identity provider that are under way. The secrets themselves are in the browser: the state in the
-- address, and in a cookie the secret from which the nonce and the PKCE verifier are made.
create table fairlead.oidc_sign_ins (
    state_hash   bytea primary key,
    browser_hash bytea not null,
    provider     text not null,
    next_page    text not null,
    expires_at   timestamptz not null
);
create index oidc_sign_ins_by_age on fairlead.oidc_sign_ins (expires_at);

-- Logout tokens of identity providers that were received: each is accepted once.
create table fairlead.oidc_logouts (
    token_hash bytea primary key,
    expires_at timestamptz not null
);

create table fairlead.tokens (
    id           uuid primary key default fairlead.uuid7(),
    tenant_id    uuid references fairlead.tenants,
    host_id      uuid,
    -- the user who made the token, also through another token: it is valid only while that user may grant its role
    user_id      uuid references fairlead.users,
    name         text not null,
    role         text not null,
    definitions  text[],                   -- the definitions that it is for; null: all
    scopes       text[],                   -- the permissions of its role that it has; null: all
    addresses    text[],                   -- the networks that it may be used from; null: any
    -- made by its user for oneself; it may manage neither tokens nor users
    is_personal  boolean not null default false,
    replaced_by  uuid,                     -- the token that took its place when it was rotated
    prefix       text not null,
    secret_hash  bytea not null unique,
    created_by   text,
    created_at   timestamptz not null default clock_timestamp(),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    constraint tokens_role check (
        role in ('viewer', 'operator', 'tenant_admin', 'super_admin', 'application', 'worker', 'agent')),
    constraint tokens_tenant check (role in ('super_admin', 'worker') or tenant_id is not null),
    constraint tokens_super check (role <> 'super_admin' or tenant_id is null),
    constraint tokens_host check ((role = 'agent') = (host_id is not null)),
    constraint tokens_definitions check (definitions <> '{}'),
    constraint tokens_scopes check (scopes <> '{}'),
    constraint tokens_addresses check (addresses <> '{}'),
    constraint tokens_personal check (not is_personal or (user_id is not null and expires_at is not null)),
    -- an agent's host belongs to its tenant
    constraint tokens_host_of_tenant foreign key (tenant_id, host_id) references fairlead.hosts (tenant_id, id)
);
create index tokens_by_tenant on fairlead.tokens (tenant_id, id);
create index tokens_of_user on fairlead.tokens (user_id) where user_id is not null;

-- The answer to a request with an Idempotency-Key: a repetition gets the same answer.
create table fairlead.idempotency_keys (
    scope_id    uuid not null,             -- the tenant, or zero for the system itself
    key         text not null,
    body_hash   bytea not null,
    status_code integer,
    answer      jsonb,
    created_at  timestamptz not null default clock_timestamp(),
    primary key (scope_id, key)
);
create index idempotency_keys_by_age on fairlead.idempotency_keys (created_at);

-- Tickets for live sockets. A browser cannot send a header with a WebSocket, and URLs end up in logs: so the URL holds a
-- ticket, valid once and for half a minute, in place of the token or session that asked for it. The ticket names that
-- token or session, so that its revocation closes the socket.
create table fairlead.live_tickets (
    ticket_hash  bytea primary key,
    tenant_id    uuid,                     -- whose events; null: those of all tenants
    actor        text not null,
    role         text not null,
    token_id     uuid,
    session_hash bytea,
    expires_at   timestamptz not null,
    constraint live_tickets_holder check ((token_id is null) <> (session_hash is null))
);

-- Rate limits that all server processes share: requests of a token or a user, failed attempts of an address or at an
-- account. `until` is the moment when the whole budget is available again. Unlogged: after a crash every budget is full.
create unlogged table fairlead.allowances (
    key     text primary key,
    until   timestamptz not null,
    -- how much the last request for a share was given
    granted integer not null
) with (fillfactor = 50);

-- How many long polls, live sockets and followed logs each server process holds open for a tenant. A process renews its
-- rows while it holds something; rows of a process that died expire. Unlogged: after a crash the processes write them
-- anew.
create unlogged table fairlead.openings (
    tenant_id  uuid not null,
    quota      text not null,
    server_id  uuid not null,
    held       integer not null,
    expires_at timestamptz not null,
    primary key (tenant_id, quota, server_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);


-- Views of the console's lists: a page and its filters, under a name.
create table fairlead.saved_views (
    id         uuid primary key default fairlead.uuid7(),
    -- null: of super admins, who look at all tenants
    tenant_id  uuid references fairlead.tenants,
    page       text not null,
    name       text not null,
    query      text not null,
    is_shared  boolean not null,
    owner      text not null,
    owner_id   uuid not null,
    created_at timestamptz not null default clock_timestamp(),
    constraint saved_views_name check (name <> '' and length(name) <= 80),
    constraint saved_views_query check (length(query) <= 2000)
);
-- A name is used once on a page: among the shared views of a tenant, and among each user's own.
create unique index saved_views_by_name on fairlead.saved_views (
    coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'::uuid), page,
    (case when is_shared then '00000000-0000-0000-0000-000000000000'::uuid else owner_id end), lower(name));


-- Keys that encrypt secrets ---------------------------------------------------------------------------------------------

-- The data keys of tenants and (null) of the platform, each wrapped by a master key that the database never has. No row is
-- deleted: a value that was sealed with it might be in a backup, or come back with a tenant.
create table fairlead.tenant_keys (
    id            uuid primary key,
    tenant_id     uuid references fairlead.tenants,
    wrapped       bytea not null,
    master_key    text not null,
    created_at    timestamptz not null default clock_timestamp(),
    -- null: the key with which values are sealed now
    superseded_at timestamptz,
    -- when a rotation has found no value that was sealed with it
    retired_at    timestamptz,
    constraint tenant_keys_order check (retired_at is null or superseded_at is not null)
);
create unique index tenant_keys_current on fairlead.tenant_keys (
    coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'::uuid)) where superseded_at is null;


-- Hooks: addresses at which other systems send webhooks, which become events ---------------------------------------------

create table fairlead.hooks (
    id                uuid primary key default fairlead.uuid7(),
    tenant_id         uuid not null references fairlead.tenants,
    name              text not null,
    scheme            text not null,
    -- `{type}` in it is replaced by the sender's type of a delivery
    event_name        text not null,
    -- what identifies a delivery: the sender's id of it, or its body
    unique_by         text not null default 'id',
    tolerance_seconds integer not null default 300,
    is_enabled        boolean not null default true,
    created_by        text not null,
    created_at        timestamptz not null default clock_timestamp(),
    updated_at        timestamptz not null default clock_timestamp(),
    last_refused_at   timestamptz,
    last_refusal      text,
    constraint hooks_name_taken unique (tenant_id, name),
    constraint hooks_name check (name ~ '^[a-z][a-z0-9_-]{0,62}$'),
    constraint hooks_scheme check (scheme in ('standard', 'github', 'stripe', 'slack')),
    constraint hooks_event_name check (length(event_name) between 1 and 255),
    constraint hooks_unique_by check (unique_by in ('id', 'body')),
    constraint hooks_tolerance check (tolerance_seconds between 1 and 3600)
) with (fillfactor = 50);

-- A signature cannot be checked with a hash of its secret. Tenants may write secrets, and only the system reads them.
create table fairlead.hook_secrets (
    hook_id     uuid not null references fairlead.hooks on delete cascade,
    tenant_id   uuid not null,
    secret      text not null,
    created_at  timestamptz not null default clock_timestamp(),
    -- null: the current one; the others are valid until then
    valid_until timestamptz
);
create index hook_secrets_by_hook on fairlead.hook_secrets (hook_id);

-- Each delivery that became an event, kept for longer than senders repeat theirs, and independently of the event.
create table fairlead.hook_deliveries (
    hook_id     uuid not null references fairlead.hooks on delete cascade,
    -- a SHA-256 hash of the sender's id, or of the body
    key         bytea not null,
    tenant_id   uuid not null,
    event_id    uuid not null,
    received_at timestamptz not null default clock_timestamp(),
    primary key (hook_id, key)
);
create index hook_deliveries_by_time on fairlead.hook_deliveries (hook_id, received_at);
create index hook_deliveries_by_age on fairlead.hook_deliveries using brin (received_at);


-- Audit ---------------------------------------------------------------------------------------------------------------
--
-- The audit log only grows: triggers refuse updates, deletes and truncates, and retention drops whole days. No foreign
-- keys: the rows that an entry names may be gone.

create table fairlead.audit_log (
    at            timestamptz not null default clock_timestamp(),
    tenant_id     uuid,
    actor         text not null,
    action        text not null,
    resource_type text not null,
    resource_id   text,
    -- Jobs that succeeded together share a row: their ids, and the numbers of their attempts.
    jobs          uuid[],
    attempts      integer[],
    details       jsonb not null default '{}',
    ip            inet default fairlead.ip_of_session(),
    principal_id  uuid default fairlead.principal_of_session()
) partition by range (at);
-- random bytes cannot be compressed
-- not on Citus
alter table fairlead.audit_log alter jobs set storage external, alter attempts set storage main;
create index audit_by_tenant on fairlead.audit_log (tenant_id, at);

-- The log with an entry for each job of a shared row. `part`, `spot` and `n` order entries of the same time.
create view fairlead.audit_entries with (security_invoker) as
select a.at, a.tenant_id, a.actor, a.action, a.resource_type, coalesce(job.id::text, a.resource_id) as resource_id,
    case when job.id is null then a.details else a.details || jsonb_build_object('attempt_no', job.attempt_no) end as details,
    a.ip, a.principal_id, a.tableoid::bigint as part, a.ctid as spot, coalesce(job.n, 0) as n
from fairlead.audit_log a
left join lateral unnest(a.jobs, a.attempts) with ordinality as job(id, attempt_no, n) on true;

-- not on Citus
create trigger audit_rows_stay before update or delete on fairlead.audit_log
    for each row execute function fairlead.refuse_change();
-- not on Citus
create trigger audit_stays before truncate on fairlead.audit_log
    for each statement execute function fairlead.refuse_change();

-- Takes the entries of a day whose partition is missing, so that an audited change never fails for want of one. See
-- functions/prepare_audit_days.sql.
create table fairlead.audit_log_rest partition of fairlead.audit_log default;
-- not on Citus
create trigger audit_stays before truncate on fairlead.audit_log_rest
    for each statement execute function fairlead.refuse_change();


-- Upkeep --------------------------------------------------------------------------------------------------------------

-- The duties of the watchdogs of all processes: each is done by one of them at a time, at its own pace, from the place
-- where the last one stopped.
create table fairlead.duties (
    name       text primary key,
    due_at     timestamptz not null default clock_timestamp(),
    place      text,
    done_at    timestamptz,
    -- a duty that fails is put off each time, and so never looks overdue: its failures are counted
    failures   integer not null default 0,
    last_error text
) with (fillfactor = 50);
insert into fairlead.duties (name) values
    ('retention'), ('audit_prepare'), ('audit_drop'), ('count_minutes'), ('count_history'), ('usage'), ('expired'),
    ('firings'), ('events'), ('runs'), ('sleepers'), ('checks'), ('sample'), ('stored_bytes'),
    ('failures'), ('error_groups'), ('held_jobs'), ('limit_rows'), ('approvals'),
    ('account_mails');

-- One row, which every sweep of a watchdog renews. An old row means that the database was away or no watchdog ran: then
-- leases are left to their owners for a while. The row is replicated, so a failover is noticed as well as a restart.
create table fairlead.pulse (
    is_only        boolean primary key default true check (is_only),
    pulse_at       timestamptz,
    resumed_at     timestamptz not null default '-infinity',
    -- the resumption before that
    resumed_before timestamptz not null default '-infinity'
);
insert into fairlead.pulse default values;

-- The results of the continuous checks: the duty `checks` looks at the hot tables, and `sample` at the record, a range
-- of ids at a time. Every process shows them as metrics, so that one of them looks for all.
create table fairlead.checks (
    name       text primary key,
    verdict    text not null,
    value      double precision,
    detail     text not null,
    advice     text not null default '',
    checked_at timestamptz not null default clock_timestamp(),
    constraint checks_verdict check (verdict in ('ok', 'warn', 'fail'))
) with (fillfactor = 50);


-- The directory of cells ----------------------------------------------------------------------------------------------
--
-- Used only in the home cell, the database that all processes are started with. Without a row in `cells` it is the only one.

create table fairlead.cells (
    name        text primary key,
    cell_id     uuid not null unique,
    -- null: the home cell. May name a variable or a file that has the URL (env:NAME, file:PATH)
    url         text,
    schema_name text not null,
    -- a distributed schema of a Citus cluster, whose coordinator is at `url`
    is_citus    boolean not null default false,
    -- new tenants go elsewhere
    is_draining boolean not null default false,
    created_by  text not null,
    created_at  timestamptz not null default clock_timestamp(),
    constraint cells_name check (name ~ '^[a-z0-9][a-z0-9-]{0,62}$')
);
create unique index cells_home on fairlead.cells ((true)) where url is null;

-- The cells of the tenants that do not live, or have not always lived, in the home cell.
create table fairlead.tenant_cells (
    tenant_id  uuid primary key,
    slug       text not null unique,
    cell       text not null references fairlead.cells,
    epoch      bigint not null default 0,
    changed_at timestamptz not null default clock_timestamp()
);
create index tenant_cells_by_cell on fairlead.tenant_cells (cell);

-- This cell's part of a definition's max_running; not only in the home cell. See store/allotments.sql.
create table fairlead.allotments (
    definition_id uuid primary key,
    number        integer not null,
    -- the round that wrote it: an earlier one can change it no more
    round         bigint not null,
    constraint allotments_number check (number >= 0)
);

-- What each cell may use of a definition's max_running at most, as far as the home cell knows.
create table fairlead.allotment_grants (
    definition_id uuid not null,
    cell_id       uuid not null,
    number        integer not null,
    primary key (definition_id, cell_id),
    constraint allotment_grants_number check (number >= 0)
);

-- The rounds in which allotments are changed and definitions are copied to the other cells: always one row.
create table fairlead.cell_rounds (
    only_row boolean primary key default true check (only_row),
    round    bigint not null default 0,
    due_at   timestamptz not null default '-infinity'
);
insert into fairlead.cell_rounds default values;

-- Moves of tenants that have begun and not ended. A move that was interrupted goes on from its step.
create table fairlead.tenant_moves (
    tenant_id    uuid primary key,
    slug         text not null,
    source       text not null references fairlead.cells,
    target       text not null references fairlead.cells,
    step         text not null default 'gate',
    -- the epoch that the move gives the tenant
    epoch        bigint not null,
    -- how far the step is, for people: {"table", "rows", "of"}
    detail       jsonb not null default '{}',
    last_error   text,
    started_by   text not null,
    started_at   timestamptz not null default clock_timestamp(),
    updated_at   timestamptz not null default clock_timestamp(),
    constraint tenant_moves_step check (step in ('gate', 'copy', 'flip', 'open', 'remove', 'reopen'))
);


-- Which rows a tenant may see -----------------------------------------------------------------------------------------
--
-- The policies hold for the owner of the tables, too (force): a statement that forgets its condition sees nothing more.

do $$
declare
    name text;
    -- as a sub-select it is evaluated once for each statement; Citus has no sub-selects in policies
    own constant text := case when fairlead.is_distributed() then '%2$I = fairlead.tenant_of_session()'
        else '%2$I = (select fairlead.tenant_of_session())' end;
begin
    foreach name in array array[
        'tenants', 'tenant_use', 'job_definitions', 'hosts', 'resources', 'enrolment_codes', 'deliveries',
        'job_records', 'ready', 'later', 'leases', 'active_keys', 'job_tags', 'expiries', 'debounces', 'limit_locks', 'key_locks', 'rate_buckets', 'job_workers',
        'job_attempts', 'log_chunks',
        'failures', 'error_groups', 'error_group_hours', 'error_group_jobs', 'error_group_changes',
        'counts', 'count_levels', 'removed_jobs', 'usage_hourly', 'usage_told',
        'job_triggers', 'events', 'events_waiting', 'trigger_firings', 'dedupe_windows',
        'workflows', 'workflow_runs', 'workflow_steps', 'run_jobs', 'ended_steps',
        'job_steps', 'job_signals', 'approvals', 'ended_children',
        'users', 'sessions', 'account_links', 'second_factors', 'pending_sign_ins', 'identities', 'oidc_sessions', 'tokens',
        'idempotency_keys', 'live_tickets', 'openings', 'saved_views',
        'tenant_keys', 'hooks', 'hook_secrets', 'hook_deliveries', 'sources', 'tenant_cells', 'tenant_moves', 'audit_log']
    loop
        execute format('alter table fairlead.%I enable row level security', name);
        -- not on Citus, which replicates a schema that it moves as the owner
        if not fairlead.is_distributed() then
            execute format('alter table fairlead.%I force row level security', name);
        end if;
        execute format('create policy system_rows on fairlead.%I to fairlead_system using (true) with check (true)', name);
        -- definitions belong to all tenants or to some of them (below); the locks of limits belong to none
        continue when name in ('job_definitions', 'limit_locks');
        execute format(
            'create policy tenant_rows on fairlead.%I to fairlead_tenant using (' || own || ') with check (' || own || ')',
            name, case name when 'tenants' then 'id' when 'idempotency_keys' then 'scope_id' else 'tenant_id' end);
    end loop;
end
$$;

-- not on Citus
create policy tenant_rows on fairlead.job_definitions for select to fairlead_tenant
    using (only_tenants is null or (select fairlead.tenant_of_session()) = any(only_tenants));
-- only on Citus
create policy tenant_rows on fairlead.job_definitions for select to fairlead_tenant
    using (only_tenants is null or fairlead.tenant_of_session() = any(only_tenants));
create policy shared_rows on fairlead.job_workers for select to fairlead_tenant using (tenant_id is null);
create policy shared_rows on fairlead.workflows for select to fairlead_tenant using (is_shared);
-- wrapped, as all of them: a run of a shared workflow opens its secrets, and seals them for the run's tenant
create policy shared_rows on fairlead.tenant_keys for select to fairlead_tenant
    using (tenant_id = '00000000-0000-7000-8000-000000000000');

grant select on fairlead.jobs, fairlead.audit_entries, fairlead.tenants, fairlead.job_definitions, fairlead.system, fairlead.leases, fairlead.job_attempts,
    fairlead.attempts, fairlead.log_chunks, fairlead.count_levels, fairlead.removed_jobs, fairlead.usage_hourly, fairlead.openings,
    fairlead.error_group_hours, fairlead.sources
    to fairlead_tenant;
grant select, insert on fairlead.error_group_changes, fairlead.counts, fairlead.audit_log, fairlead.events, fairlead.events_waiting,
    fairlead.trigger_firings, fairlead.workflows, fairlead.hook_deliveries, fairlead.ended_children, fairlead.tenant_keys
    to fairlead_tenant;
grant select, insert, update on fairlead.job_records, fairlead.job_triggers, fairlead.workflow_runs, fairlead.workflow_steps,
    fairlead.idempotency_keys, fairlead.job_signals to fairlead_tenant;
grant select, insert, delete on fairlead.active_keys, fairlead.job_tags, fairlead.expiries, fairlead.live_tickets,
    fairlead.run_jobs to fairlead_tenant;
-- `update` of ready and later is for the `for update` of a cancel or retry
grant select, insert, update, delete on fairlead.ready, fairlead.later, fairlead.debounces, fairlead.dedupe_windows, fairlead.users,
    fairlead.sessions, fairlead.tokens, fairlead.hosts, fairlead.resources, fairlead.saved_views,
    fairlead.hooks to fairlead_tenant;
grant select, delete on fairlead.error_group_jobs to fairlead_tenant;
-- A cancel lets the next job of its key go. `update` of key_locks is for the `for update`.
grant select, update, delete on fairlead.key_locks to fairlead_tenant;
grant select, insert, update on fairlead.rate_buckets to fairlead_tenant;
-- A signal or an answer completes the wait for it.
grant select, update on fairlead.job_steps, fairlead.approvals to fairlead_tenant;
-- A cancel of many jobs leaves a run whose key cannot be had for later.
grant insert on fairlead.ended_steps to fairlead_tenant;
-- A retry from a step forgets steps, and a retried run waits that came to nothing.
grant insert, delete on fairlead.job_steps to fairlead_tenant;
grant select, update on fairlead.error_groups to fairlead_tenant;
grant update (worker_id) on fairlead.leases to fairlead_tenant;
grant select, update (roomy_until) on fairlead.tenant_use to fairlead_tenant;
-- Of the workers that serve every tenant, `why` needs to know what they serve and when they were seen.
grant select (queues, last_seen_at, tenant_id, drain_requested_at) on fairlead.job_workers to fairlead_tenant;
-- A tenant's admin makes codes and deletes them with their host; only the system reads one that an agent shows.
grant insert, delete, select (expires_at, host_id) on fairlead.enrolment_codes to fairlead_tenant;
-- A tenant's admin sees who has a second factor, and removes it; only the system reads and checks its secret.
grant delete, select (user_id, tenant_id, confirmed_at) on fairlead.second_factors to fairlead_tenant;
-- A list of users says who is invited; only the system knows whether a link is good.
grant select (user_id, tenant_id, purpose, expires_at, used_at, revoked_at) on fairlead.account_links to fairlead_tenant;
-- Also a tenant's admin cannot read a hook's secret again.
grant insert, select (hook_id, valid_until), update (valid_until) on fairlead.hook_secrets to fairlead_tenant;


-- In a distributed schema of Citus ------------------------------------------------------------------------------------
--
-- What triggers refuse elsewhere, the owner may not do either: it has taken the right from itself. Superusers may do
-- anything: Fairlead's role must not be one. A definition cannot be renamed because its id is made from its key. That a
-- tenant is not renamed is a matter of the statements: the owner needs the right to update tenants, since Citus
-- replicates with the owner's rights when it moves the schema.

-- only on Citus
do $$
declare
    name text;
begin
    foreach name in array array['tenants', 'job_definitions'] loop
        execute format('revoke delete, truncate on fairlead.%I from current_user, fairlead_system', name);
    end loop;
    foreach name in array array['audit_log', 'audit_log_rest'] loop
        execute format('revoke update, delete, truncate on fairlead.%I from current_user, fairlead_system', name);
    end loop;
    -- Citus moves a schema by logical replication, which finds the row to change by a key, or by the whole row.
    foreach name in array array[
        'ready', 'failures', 'error_group_changes', 'counts', 'removed_jobs', 'run_jobs', 'hook_secrets', 'audit_log',
        'audit_log_rest']
    loop
        execute format('alter table fairlead.%I replica identity full', name);
    end loop;
    alter table fairlead.job_definitions add constraint definitions_id check (id = fairlead.definition_id(key));
    -- and it does not replicate unlogged tables
    foreach name in array array['allowances', 'openings'] loop
        execute format('alter table fairlead.%I set logged', name);
    end loop;
end
$$;
