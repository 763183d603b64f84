-- Fills the tables as after long use: each statement writes the rows that enqueue, claim and finish would have left,
-- counts included (one row a minute, as if folded), so that the queue is consistent with the jobs.
-- Jobs are numbered; one was enqueued every second.

-- name: finished
-- Jobs that ran once, the last of them now. Every hundredth failed.
with job as (
    insert into fairlead.job_records (
        id, tenant_id, definition_id, priority, max_attempts, attempt_count, failure_count, scheduled_for, queued_at,
        started_at, finished_at, status, troubled, created_by, claimed_by_worker, payload, success_token)
    select fairlead.uuid7(), t.id, d.id, d.default_priority, d.max_attempts, 1, failed::int, at, at, at, at,
        case when failed then 'failed' else 'succeeded' end::fairlead.job_status, failed, 'bench', 'bench', '{}',
        case when not failed then gen_random_uuid() end
    from fairlead.tenants t, fairlead.job_definitions d, generate_series(%(first)s::int, %(last)s::int) n
    cross join lateral (
        select statement_timestamp() - make_interval(secs => %(count)s - n) as at, n %% 100 = 0 as failed) made
    where t.slug = %(tenant)s and d.key = %(definition)s
    returning id, tenant_id, definition_id, finished_at, status
), attempt as (
    insert into fairlead.job_attempts (
        job_id, attempt_no, tenant_id, token, worker_id, status, started_at, finished_at, duration_ms)
    select id, 1, tenant_id, gen_random_uuid(), 'bench', status::text, finished_at, finished_at, 0
    from job where status = 'failed'
)
insert into fairlead.counts (
    tenant_id, definition_id, minute, succeeded, failed, runs, retried, run_ms, queue_ms, cost_cents)
select tenant_id, definition_id, date_trunc('minute', finished_at),
    count(*) filter (where status = 'succeeded'), count(*) filter (where status = 'failed'), count(*), 0, 0, 0, 0
from job group by 1, 2, 3;

-- name: queued
-- Due jobs, of higher priority than any that will be drained; assigned to the hosts in turn, if there are any.
with job as (
    insert into fairlead.job_records (
        id, tenant_id, definition_id, host_id, priority, max_attempts, scheduled_for, queued_at, created_by, payload)
    select fairlead.uuid7(), t.id, d.id, (h.ids)[1 + n %% cardinality(h.ids)], 50, d.max_attempts, made.at, made.at,
        'bench', '{}'
    from fairlead.tenants t, fairlead.job_definitions d, generate_series(%(first)s::int, %(last)s::int) n
    cross join lateral (select statement_timestamp() - make_interval(secs => %(count)s - n) as at) made
    cross join (select %(hosts)s::uuid[] as ids) h
    where t.slug = %(tenant)s and d.key = %(definition)s
    returning id, tenant_id, definition_id, host_id, priority, scheduled_for
), now_ready as (
    insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for)
    select id, tenant_id, definition_id, host_id, priority, scheduled_for from job
)
insert into fairlead.counts (tenant_id, definition_id, minute, queued)
select tenant_id, definition_id, date_trunc('minute', scheduled_for), count(*) from job group by 1, 2, 3;

-- name: later
-- Jobs that are due in an hour or later.
with job as (
    insert into fairlead.job_records (
        id, tenant_id, definition_id, priority, max_attempts, scheduled_for, queued_at, created_by, payload)
    select fairlead.uuid7(), t.id, d.id, 50, d.max_attempts, made.at + '1 hour' + make_interval(secs => %(count)s),
        made.at, 'bench', '{}'
    from fairlead.tenants t, fairlead.job_definitions d, generate_series(%(first)s::int, %(last)s::int) n
    cross join lateral (select statement_timestamp() - make_interval(secs => %(count)s - n) as at) made
    where t.slug = %(tenant)s and d.key = %(definition)s
    returning id, tenant_id, definition_id, priority, scheduled_for, queued_at
), waiting as (
    insert into fairlead.later (job_id, tenant_id, definition_id, priority, due_at)
    select id, tenant_id, definition_id, priority, scheduled_for from job
)
insert into fairlead.counts (tenant_id, definition_id, minute, queued)
select tenant_id, definition_id, date_trunc('minute', queued_at), count(*) from job group by 1, 2, 3;

-- name: sleeping
-- Durable functions that have run once and sleep for an hour or longer.
with job as (
    insert into fairlead.job_records (
        id, tenant_id, definition_id, priority, max_attempts, attempt_count, scheduled_for, queued_at, started_at, created_by,
        claimed_by_worker, payload)
    select fairlead.uuid7(), t.id, d.id, 50, d.max_attempts, 1, made.at + '1 hour' + make_interval(secs => %(count)s),
        made.at, made.at, 'bench', 'bench', '{"seconds": 3600}'
    from fairlead.tenants t, fairlead.job_definitions d, generate_series(%(first)s::int, %(last)s::int) n
    cross join lateral (select statement_timestamp() - make_interval(secs => %(count)s - n) as at) made
    where t.slug = %(tenant)s and d.key = %(definition)s
    returning id, tenant_id, definition_id, priority, scheduled_for, queued_at
), attempt as (
    insert into fairlead.job_attempts (
        job_id, attempt_no, tenant_id, token, worker_id, status, started_at, finished_at, duration_ms)
    select id, 1, tenant_id, gen_random_uuid(), 'bench', 'released', queued_at, queued_at, 0 from job
), step as (
    insert into fairlead.job_steps (
        job_id, position, attempt_no, status, kind, name, tenant_id, started_at, due_at)
    select id, 0, 1, 'waiting', 'sleep', 'sleep', tenant_id, queued_at, scheduled_for from job
), waiting as (
    insert into fairlead.later (job_id, tenant_id, definition_id, priority, due_at, waits)
    select id, tenant_id, definition_id, priority, scheduled_for, true from job
)
insert into fairlead.counts (tenant_id, definition_id, minute, queued, runs)
select tenant_id, definition_id, date_trunc('minute', queued_at), count(*), count(*) from job group by 1, 2, 3;

-- name: hosts
insert into fairlead.hosts (tenant_id, name)
select t.id, 'host-' || n from fairlead.tenants t, generate_series(1, %(count)s::int) n where t.slug = %(tenant)s
on conflict (tenant_id, name) do update set name = excluded.name
returning id;

-- name: tenants
insert into fairlead.tenants (slug, name)
select name || '-' || n, name || ' ' || n from generate_series(1, %(count)s::int) n, (select %(name)s::text as name) called
on conflict (slug) do update set name = excluded.name
returning slug;

-- name: waiting
select count(*) from fairlead.ready;

-- name: emptied
truncate fairlead.job_records, fairlead.job_attempts, fairlead.ready, fairlead.later, fairlead.leases, fairlead.active_keys,
    fairlead.counts, fairlead.count_levels, fairlead.usage_hourly, fairlead.job_steps;
