-- Jobs are the record that people read; ready, later, leases and active_keys are the queue.
--
-- A job is in exactly one of ready, later, leases (queued, queued, running) or in none
-- (terminal). Whoever deletes the hot row owns the transition and only then touches jobs.
--
-- No index on jobs mentions a column that a successful run changes, predicates included,
-- so every update of a run is heap-only and history costs the queue nothing.

-- The order of the labels is used: everything after 'running' is over, everything after
-- 'succeeded' is trouble.
create type fairlead.job_status as enum ('queued', 'running', 'succeeded', 'failed', 'dead_letter', 'canceled');
create type fairlead.job_source as enum ('manual', 'event', 'schedule', 'system');

create table fairlead.jobs (
    id                  uuid primary key,
    tenant_id           uuid not null,
    definition_id       uuid not null,
    parent_id           uuid,
    workflow_run_id     uuid,
    host_id             uuid,
    resource_id         uuid,
    priority            integer not null,
    max_attempts        integer not null,
    attempt_count       integer not null default 0,
    failure_count       integer not null default 0,
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
    -- A status and its times always fit. Kept this short on purpose: PostgreSQL reads a check
    -- anew for every statement, and a long one cost a single insert more than the row itself.
    constraint jobs_life check (
        (status > 'running') = (finished_at is not null)
        and (status > 'succeeded') = troubled
        and (attempt_count > 0) = (started_at is not null))
) with (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

create index jobs_by_tenant on fairlead.jobs (tenant_id, id);
create index jobs_troubled on fairlead.jobs (tenant_id, id) where troubled;
create index jobs_by_correlation on fairlead.jobs (tenant_id, correlation_id, id) where correlation_id is not null;
-- any length of key must fit an index, hence the hash
create index jobs_by_dedupe_key on fairlead.jobs (tenant_id, hashtextextended(dedupe_key, 0), id)
    where dedupe_key is not null;
create index jobs_by_parent on fairlead.jobs (parent_id) where parent_id is not null;

-- A queue's tables turn over completely: vacuum by a plain threshold, at full speed.
create table fairlead.ready (
    job_id        uuid not null,
    tenant_id     uuid not null,
    definition_id uuid not null,
    host_id       uuid,
    priority      integer not null,
    scheduled_for timestamptz not null
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
create unique index ready_by_tenant on fairlead.ready (tenant_id, definition_id, priority, scheduled_for, job_id)
    where host_id is null;
create unique index ready_by_host on fairlead.ready (host_id, priority, scheduled_for, job_id)
    where host_id is not null;

create table fairlead.later (
    job_id        uuid not null,
    tenant_id     uuid not null,
    definition_id uuid not null,
    host_id       uuid,
    priority      integer not null,
    due_at        timestamptz not null,
    primary key (due_at, job_id)
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- expires_at is not indexed, so that a heartbeat is a heap-only update.
create table fairlead.leases (
    job_id        uuid primary key,
    attempt_no    integer not null,
    token         uuid not null,
    worker_id     text not null,
    tenant_id     uuid not null,
    definition_id uuid not null,
    host_id       uuid,
    started_at    timestamptz not null default clock_timestamp(),
    expires_at    timestamptz not null
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
create index leases_by_tenant on fairlead.leases (tenant_id, definition_id);
create index leases_by_host on fairlead.leases (host_id) where host_id is not null;

-- At most one queued or running job per (tenant, dedupe key).
create table fairlead.active_keys (
    tenant_id uuid not null,
    key_hash  bytea not null,
    job_id    uuid not null,
    primary key (tenant_id, key_hash)
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);

create table fairlead.job_attempts (
    id          uuid not null,
    job_id      uuid not null,
    attempt_no  integer not null,
    tenant_id   uuid not null,
    token       uuid not null,
    worker_id   text not null,
    pid         integer,
    status      text not null default 'running',
    started_at  timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
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
        status in ('running', 'succeeded', 'failed', 'timeout', 'canceled', 'lost', 'released')),
    constraint attempts_life check ((status = 'running') = (finished_at is null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create table fairlead.job_workers (
    worker_id     text primary key,
    hostname      text not null,
    version       text not null default '',
    queues        text[] not null default '{}',
    started_at    timestamptz not null default clock_timestamp(),
    last_seen_at  timestamptz not null default clock_timestamp(),
    running_count integer not null default 0,
    concurrency   integer not null default 0,
    metadata      jsonb not null default '{}'
) with (fillfactor = 50);

-- A row per limited scope, locked before its leases are counted. Never the tenants or
-- definitions rows: enqueues read those.
create table fairlead.limit_locks (
    scope    text not null,
    scope_id uuid not null,
    other_id uuid not null default '00000000-0000-0000-0000-000000000000',
    primary key (scope, scope_id, other_id),
    constraint limit_locks_scope check (scope in ('tenant', 'definition', 'definition_tenant', 'host'))
);

-- Deltas appended by the statements that change jobs, folded later: a level is a sum, a flow
-- is a minute's rows. One row per tenant, definition and batch.
create table fairlead.counts (
    tenant_id     uuid not null,
    definition_id uuid not null,
    minute        timestamptz not null,
    queued        integer not null default 0,
    running       integer not null default 0,
    succeeded     integer not null default 0,
    failed        integer not null default 0,
    dead_letter   integer not null default 0,
    canceled      integer not null default 0
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
create index counts_by_tenant on fairlead.counts (tenant_id, minute);
