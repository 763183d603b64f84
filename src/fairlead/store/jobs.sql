-- A job is in exactly one of ready, later, leases, or none, by its status. The transaction that deletes
-- the hot row owns the transition, and only then changes the job's record.

-- name: enqueue
-- Enqueues a single job: see functions/enqueue_one.sql.
select job_id, outcome, definition, tenant_id, definition_id, waits, quota from fairlead.enqueue_one

-- name: enqueue_plain
-- enqueue_one for a job without options, for a process that knows the ids: nearly every enqueue, and about a sixth faster.
-- Returns no row if the definition has another version or is not active, or if the tenant's quota has to be counted: see
-- functions/room_of.sql.
with about as materialized (
    select u.tenant_id, d.id as definition_id, d.default_priority, d.max_attempts, clock_timestamp() as moment
    from fairlead.tenant_use u, fairlead.job_definitions d
    where u.tenant_id = %(tenant_id)s and u.roomy_until > clock_timestamp()
        and d.id = %(definition_id)s and d.version = %(version)s and d.is_active
        and (d.only_tenants is null or u.tenant_id = any(d.only_tenants))
        -- a definition for hosts goes through enqueue_one
        and d.resource_pointer is null and d.kind <> 'host' and d.by_key is null
), now_ready as (
    insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for)
    select %(id)s::uuid, tenant_id, definition_id, default_priority, moment from about
), counted as (
    insert into fairlead.counts (tenant_id, definition_id, minute, queued)
    select tenant_id, definition_id, date_trunc('minute', moment), 1 from about
), audited as (
    insert into fairlead.audit_log (at, tenant_id, actor, action, resource_type, resource_id, details)
    select moment, tenant_id, %(actor)s::text, 'job_created', 'job', %(id)s::uuid::text,
        jsonb_build_object('definition_key', %(key)s::text) from about
)
insert into fairlead.job_records (
    id, tenant_id, definition_id, priority, max_attempts, scheduled_for, queued_at, created_by, payload)
select %(id)s::uuid, tenant_id, definition_id, default_priority, max_attempts, moment, moment, %(actor)s::text,
    %(payload)s::jsonb
from about
returning id

-- name: enqueue_plain_group
-- enqueue_plain for several jobs, in their order. Returns the ids of those that it enqueued. The whole group must fit into
-- what a quota leaves: functions/room_of.sql expects 10,000 jobs a second.
with about as materialized (
    select a.id, a.key, a.payload, u.tenant_id, d.definition_id, d.default_priority, d.max_attempts,
        clock_timestamp() as moment
    from jsonb_to_recordset(%(jobs)s::jsonb) as a(
        id uuid, tenant_id uuid, definition_id uuid, version integer, key text, payload jsonb)
    -- one by one, through the primary keys: a group is small, and these tables may be large
    cross join lateral (
        select u.tenant_id from fairlead.tenant_use u
        where u.tenant_id = a.tenant_id
            and u.roomy_until > clock_timestamp() + make_interval(secs => %(size)s::integer / 10000.0) offset 0) u
    cross join lateral (
        select d.id as definition_id, d.default_priority, d.max_attempts from fairlead.job_definitions d
        where d.id = a.definition_id and d.version = a.version and d.is_active
            and (d.only_tenants is null or a.tenant_id = any(d.only_tenants))
            and d.resource_pointer is null and d.kind <> 'host' and d.by_key is null offset 0) d
), now_ready as (
    insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for)
    select id, tenant_id, definition_id, default_priority, moment from about
), counted as (
    insert into fairlead.counts (tenant_id, definition_id, minute, queued)
    select tenant_id, definition_id, date_trunc('minute', moment), count(*) from about group by 1, 2, 3
), audited as (
    insert into fairlead.audit_log (at, tenant_id, actor, action, resource_type, resource_id, details)
    select moment, tenant_id, %(actor)s::text, 'job_created', 'job', id::text,
        jsonb_build_object('definition_key', key) from about
)
insert into fairlead.job_records (
    id, tenant_id, definition_id, priority, max_attempts, scheduled_for, queued_at, created_by, payload)
select id, tenant_id, definition_id, default_priority, max_attempts, moment, moment, %(actor)s::text, payload
from about
returning id

-- name: joined
select fairlead.enqueue_joined(%(jobs)s)

-- name: selected
select j.id, j.tenant_id, t.slug as tenant, d.key as definition_key, j.status, j.source, j.source_ref,
    j.priority, j.payload, j.output, j.error, j.progress, j.cost_cents, j.dedupe_key, j.correlation_id, j.tags,
    j.timeout_seconds, j.expires_at,
    j.parent_id, j.workflow_run_id, j.host_id, j.resource_id, j.scheduled_for, j.queued_at, j.started_at,
    j.finished_at, j.lease_expires_at, j.attempt_count, j.failure_count, j.lost_count,
    j.max_attempts, j.claimed_by_worker, j.cancel_requested_at,
    case when j.status <> 'succeeded' then j.last_error end as last_error, j.created_by,
    d.secret_paths || coalesce(j.secret_paths, '{}') as secret_paths
from

-- name: named
join fairlead.tenants t on t.id = j.tenant_id
join fairlead.job_definitions d on d.id = j.definition_id
where

-- name: paged
order by j.id desc limit %(limit)s offset %(offset)s

-- name: attempts
select a.id, a.job_id, a.attempt_no, a.worker_id, a.pid, a.status, a.started_at, a.finished_at, a.duration_ms,
    a.queue_ms, a.exit_code, a.signal, a.cost_cents, a.error_text, a.stdout_tail, a.stderr_tail
from fairlead.attempts a where a.job_id = %(id)s

-- name: attempts_after
and a.attempt_no > %(after)s order by a.attempt_no limit %(limit)s

-- name: attempts_newest
order by a.attempt_no desc limit %(limit)s

-- name: payload
select j.payload, j.tenant_id, d.key from fairlead.jobs j join fairlead.job_definitions d on d.id = j.definition_id
where j.id = %(id)s;

-- name: seal_payload
update fairlead.job_records set payload = %(payload)s::jsonb where id = %(id)s;

-- name: secrets
-- The unmasked payload of a job that has secrets.
select j.payload, d.secret_paths || coalesce(j.secret_paths, '{}') as secret_paths
from fairlead.jobs j join fairlead.job_definitions d on d.id = j.definition_id
where j.id = %(id)s and (d.secret_paths <> '{}' or j.secret_paths is not null);

-- name: chosen_texts
select d.key, d.secret_paths || coalesce(j.secret_paths, '{}'), j.dedupe_key, j.tags, <chosen>
from fairlead.jobs j join fairlead.job_definitions d on d.id = j.definition_id where j.id = %(id)s;

-- name: hide
-- Secret paths of a job's payload in addition to its definition's.
update fairlead.job_records set secret_paths = %(paths)s where id = %(id)s;

-- name: cancel_queued
-- Returns no row if the job does not wait any more: the caller reads it again and decides again.
with job as materialized (
    -- Ready has the later of the two times, or scheduled_for if the job waited in later. A row for each: with a list of
    -- times, PostgreSQL 16 and older would read all jobs of one time.
    select j.id, j.tenant_id, j.definition_id, j.host_id, j.priority, j.scheduled_for, due.at as ready_at
    from fairlead.job_records j
    cross join lateral (select distinct unnest(array[j.scheduled_for, greatest(j.scheduled_for, j.queued_at)]) as at) due
    where j.id = %(id)s
), from_tenant as (
    delete from fairlead.ready r using job j
    where r.host_id is null and r.tenant_id = j.tenant_id and r.definition_id = j.definition_id
        and r.priority = j.priority and r.scheduled_for = j.ready_at and r.job_id = j.id
    returning r.job_id
), from_host as (
    delete from fairlead.ready r using job j
    where r.host_id = j.host_id and r.tenant_id = j.tenant_id and r.definition_id = j.definition_id
        and r.priority = j.priority and r.scheduled_for = j.ready_at and r.job_id = j.id
    returning r.job_id
), from_later as (
    delete from fairlead.later l using job j where l.due_at = j.scheduled_for and l.job_id = j.id
    returning l.job_id
), ended as (
    update fairlead.job_records j
    set status = 'canceled', troubled = true, finished_at = clock_timestamp(),
        cancel_requested_at = coalesce(j.cancel_requested_at, clock_timestamp())
    from (table from_tenant union all table from_host union all table from_later) owned
    where j.id = owned.job_id
    returning j.id, j.tenant_id, j.definition_id, j.dedupe_key, j.limit_key
), freed as (
    delete from fairlead.active_keys k using ended e
    where k.tenant_id = e.tenant_id and k.key_hash = sha256(convert_to(e.dedupe_key, 'UTF8')) and k.job_id = e.id
        and coalesce(k.unique_until <= clock_timestamp(), true)
), counted as (
    insert into fairlead.counts (tenant_id, definition_id, minute, queued, canceled)
    select tenant_id, definition_id, date_trunc('minute', clock_timestamp()), -1, 1 from ended
)
select id, case when limit_key is not null
    then fairlead.release_keys(array[definition_id], array[tenant_id], array[limit_key]) end from ended;

-- name: hold_waiting
-- Locks a waiting job's row in the queue until the transaction ends, after a claim of it has ended: the next statement may
-- edit the job. Returns no row if the job does not wait, or has just moved: the caller reads it again.
with job as materialized (
    -- a row for each time that ready may have: see cancel_queued
    select j.id, j.tenant_id, j.definition_id, j.host_id, j.priority, j.scheduled_for, due.at as ready_at
    from fairlead.job_records j
    cross join lateral (select distinct unnest(array[j.scheduled_for, greatest(j.scheduled_for, j.queued_at)]) as at) due
    where j.id = %(id)s
), of_tenant as materialized (
    select r.job_id from job j cross join lateral (
        select r.job_id from fairlead.ready r
        where r.host_id is null and r.tenant_id = j.tenant_id and r.definition_id = j.definition_id
            and r.priority = j.priority and r.scheduled_for = j.ready_at and r.job_id = j.id
        limit 1 for update) r
), of_host as materialized (
    select r.job_id from job j cross join lateral (
        select r.job_id from fairlead.ready r
        where r.host_id = j.host_id and r.tenant_id = j.tenant_id and r.definition_id = j.definition_id
            and r.priority = j.priority and r.scheduled_for = j.ready_at and r.job_id = j.id
        limit 1 for update) r
), not_due as materialized (
    select l.job_id from job j cross join lateral (
        select l.job_id from fairlead.later l where l.due_at = j.scheduled_for and l.job_id = j.id
        limit 1 for update) l
)
table of_tenant union all table of_host union all table not_due;

-- name: edit_waiting
-- See functions/edit_waiting.sql.
select outcome, waits, released from fairlead.edit_waiting(
    job => %(id)s, actor => %(actor)s, payload => %(payload)s::jsonb, priority => %(priority)s::integer,
    scheduled_for => %(scheduled_for)s::timestamptz, with_target => %(with_target)s::boolean,
    host_id => %(host_id)s::uuid, resource_id => %(resource_id)s::uuid, tags => %(tags)s::text[]);

-- name: hold_lease
-- While this lock is held, the job cannot finish, and the next statement may request its cancel. Heartbeats continue.
select job_id from fairlead.leases where job_id = %(id)s for key share;

-- name: request_cancel
update fairlead.job_records set cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())
where id = %(id)s
returning id;

-- name: hold_terminal
-- A terminal job has no hot row, so retries lock its record.
select id, tenant_id, dedupe_key from fairlead.job_records
where id = %(id)s and status in ('failed', 'dead_letter', 'canceled') for update;

-- name: dedupe_key
select dedupe_key from fairlead.jobs where id = %(id)s;

-- name: target
-- The host and resource for which an enqueue would accept this payload.
select t.target_host as host_id, t.target_resource as resource_id, t.refusal
from fairlead.jobs j
cross join lateral fairlead.target_of(j.tenant_id, j.definition_id, %(payload)s::jsonb, null, null) t
where j.id = %(id)s;

-- name: requeue
-- A fresh retry budget; attempt numbers continue.
with job as (
    update fairlead.job_records
    set status = 'queued', troubled = false, finished_at = null, cancel_requested_at = null,
        claimed_by_worker = null, failure_count = 0, lost_count = 0, suspected = 0, accused = false,
        output = null, error = null, progress = null,
        scheduled_for = clock_timestamp(), payload = coalesce(%(payload)s::jsonb, payload),
        limit_key = fairlead.limit_key_of((
            select d.by_key from fairlead.job_definitions d where d.id = definition_id), coalesce(%(payload)s::jsonb, payload)),
        expires_at = null, host_id = %(host_id)s, resource_id = %(resource_id)s
    where id = %(id)s
    returning id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key
), ready_again as (
    insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
    select id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key from job
), left_group as (
    delete from fairlead.error_group_jobs where job_id = %(id)s
    returning group_id, tenant_id, status
), group_change as (
    insert into fairlead.error_group_changes (group_id, tenant_id, failed, dead_letter)
    select group_id, tenant_id, -count(*) filter (where status = 'failed'), -count(*) filter (where status = 'dead_letter')
    from left_group group by group_id, tenant_id
)
-- In a minute that no chart shows any more: the job leaves a level, but it did fail when it failed.
insert into fairlead.counts (tenant_id, definition_id, minute, queued, failed, dead_letter, canceled)
select tenant_id, definition_id, date_trunc('minute', scheduled_for) - interval '26 hours', 1,
    -(%(was)s = 'failed')::int, -(%(was)s = 'dead_letter')::int, -(%(was)s = 'canceled')::int
from job;

-- name: inconsistencies
-- Every disagreement between the queue and the record; no rows if they agree.
-- Run it in one snapshot (REPEATABLE READ) while others work.
with hot as (
    select job_id, 'ready' as place, tenant_id, definition_id, host_id, priority, scheduled_for as at, limit_key
    from fairlead.ready
    union all
    select job_id, 'later', tenant_id, definition_id, host_id, priority, due_at, limit_key from fairlead.later
    union all
    select job_id, 'leases', tenant_id, definition_id, host_id, null, null, limit_key from fairlead.leases
)
select job_id, 'in ' || count(*) || ' places: ' || string_agg(place, ', ' order by place) as problem
from hot group by job_id having count(*) > 1
union all
select hot.job_id, 'in ' || place || ' without a job' from hot
where not exists (select from fairlead.job_records j where j.id = hot.job_id)
union all
select j.id, 'is ' || j.status || ' but in ' || hot.place
from fairlead.job_records j join hot on hot.job_id = j.id
where j.status <> 'queued'
union all
select j.id, 'is ' || j.status || ' but in no hot table'
from fairlead.job_records j
where j.status = 'queued' and not exists (select from hot where hot.job_id = j.id)
union all
select j.id, 'differs from its row in ' || hot.place
from fairlead.job_records j join hot on hot.job_id = j.id
where (j.tenant_id, j.definition_id) <> (hot.tenant_id, hot.definition_id)
    or j.host_id is distinct from hot.host_id or j.priority <> hot.priority
    or j.limit_key is distinct from hot.limit_key
    or hot.at <> j.scheduled_for and (hot.place = 'later' or hot.at <> greatest(j.scheduled_for, j.queued_at))
union all
select l.job_id, 'is held back by its key, and nothing will let it go'
from fairlead.later l
cross join lateral (
    select coalesce((d.by_key -> 'fifo')::boolean, false) as fifo
    from fairlead.job_definitions d where d.id = l.definition_id) d
where l.held and not exists (
        -- of a key in strict order: it waits for an older job's retry
        select from fairlead.later k
        where d.fifo and k.definition_id = l.definition_id and k.tenant_id = l.tenant_id and k.limit_key = l.limit_key
            and not k.held and k.job_id < l.job_id)
    and not exists (
        select from fairlead.leases k
        where k.definition_id = l.definition_id and k.tenant_id = l.tenant_id and k.limit_key = l.limit_key)
    and not exists (
        select from fairlead.ready k
        where k.definition_id = l.definition_id and k.tenant_id = l.tenant_id and k.limit_key = l.limit_key
            and (not d.fifo or k.job_id < l.job_id))
    and not exists (
        -- it waits for the rate of its key
        select from fairlead.rate_buckets b
        where b.definition_id = l.definition_id and b.tenant_id = l.tenant_id and b.limit_key = l.limit_key
            and b.wake_at is not null)
union all
select l.job_id, 'is a durable function that sleeps, and nothing that it waits for is open'
from fairlead.later l
where l.waits and l.due_at > clock_timestamp() and not exists (
    select from fairlead.job_steps s where s.job_id = l.job_id and s.status = 'waiting')
union all
select l.job_id, 'is a durable function that sleeps although a wait was completed'
from fairlead.later l join fairlead.job_records j on j.id = l.job_id
join fairlead.job_attempts a on a.job_id = j.id and a.attempt_no = j.attempt_count
where l.waits and l.due_at > clock_timestamp() and exists (
    select from fairlead.job_steps s
    where s.job_id = l.job_id and s.kind not in ('step', 'sleep') and s.status <> 'waiting' and s.ended_at > a.finished_at)
union all
select j.id, 'is ' || j.status || ', which its times or its count of attempts contradict'
from fairlead.job_records j
where j.status = 'running' or (j.status > 'running') <> (j.finished_at is not null) or (j.status > 'succeeded') <> j.troubled
    or (j.attempt_count > 0) <> (j.started_at is not null)
union all
select k.job_id, 'holds an active key but is not active'
from fairlead.active_keys k
where k.unique_until is null and not exists (
    select from fairlead.jobs j where j.id = k.job_id and j.tenant_id = k.tenant_id and j.status <= 'running'
        and sha256(convert_to(j.dedupe_key, 'UTF8')) = k.key_hash)
union all
select j.id, 'is active but does not hold its key'
from fairlead.jobs j
where j.status <= 'running' and j.dedupe_key is not null and not exists (
    select from fairlead.active_keys k where k.job_id = j.id and k.tenant_id = j.tenant_id)
union all
select l.job_id, 'is leased for an attempt that is not its running one'
from fairlead.leases l
where not exists (
    select from fairlead.job_records j where j.id = l.job_id and j.attempt_count = l.attempt_no - 1)
    or exists (select from fairlead.job_attempts a where a.job_id = l.job_id and a.attempt_no = l.attempt_no)
union all
select null, 'counts of ' || status || ' say ' || counted || ' where there are ' || there
from (
    select status, sum(counted) as counted, sum(there) as there
    from (
        select tenant_id, definition_id, s.status, s.counted, 0 as there
        from fairlead.counts c, lateral (values
            ('queued', c.queued), ('running', c.running), ('succeeded', c.succeeded), ('failed', c.failed),
            ('dead_letter', c.dead_letter), ('canceled', c.canceled)) as s(status, counted)
        union all
        select tenant_id, definition_id, status::text, 0, 1 from fairlead.jobs
    ) both_sides
    group by tenant_id, definition_id, status
) per_status
where counted <> there
union all
select null, 'levels of ' || status || ' say ' || leveled || ' where the counts say ' || counted
from (
    select status, sum(leveled) as leveled, sum(counted) as counted
    from (
        select tenant_id, definition_id, s.status, s.number as leveled, 0 as counted
        from fairlead.count_levels c, lateral (values
            ('queued', c.queued), ('running', c.running), ('succeeded', c.succeeded), ('failed', c.failed),
            ('dead_letter', c.dead_letter), ('canceled', c.canceled)) as s(status, number)
        union all
        select tenant_id, definition_id, s.status, 0, s.number
        from fairlead.counts c, lateral (values
            ('queued', c.queued), ('running', c.running), ('succeeded', c.succeeded), ('failed', c.failed),
            ('dead_letter', c.dead_letter), ('canceled', c.canceled)) as s(status, number)
        where c.leveled
    ) both_sides
    group by tenant_id, definition_id, status
) per_status
where leveled <> counted
union all
-- only if no attempt has been removed with its job: usage stays, and would be more
select null, 'usage says ' || used::text || ' where the attempts say ' || ran::text
from (
    select jsonb_build_object('runs', sum(u.runs), 'run_ms', sum(u.run_ms), 'queue_ms', sum(u.queue_ms),
            'cost_cents', sum(u.cost_cents)) as used,
        jsonb_build_object('runs', sum(a.runs), 'run_ms', sum(a.run_ms), 'queue_ms', sum(a.queue_ms),
            'cost_cents', sum(a.cost_cents)) as ran
    from (
        select tenant_id, definition_id, sum(runs) as runs, sum(run_ms) as run_ms, sum(queue_ms) as queue_ms,
            sum(cost_cents) as cost_cents
        from (
            select tenant_id, definition_id, runs, run_ms, queue_ms, cost_cents from fairlead.usage_hourly
            union all
            select tenant_id, definition_id, runs, run_ms, queue_ms, cost_cents from fairlead.counts
            where runs is not null
        ) parts
        group by tenant_id, definition_id
    ) u
    full join (
        select j.tenant_id, j.definition_id, count(*) as runs, sum(coalesce(a.duration_ms, 0)) as run_ms,
            sum(coalesce(a.queue_ms, 0)) as queue_ms, sum(a.cost_cents) as cost_cents
        from fairlead.attempts a join fairlead.jobs j on j.id = a.job_id
        where a.status <> 'running'
        group by j.tenant_id, j.definition_id
    ) a using (tenant_id, definition_id)
    where not exists (
        select from fairlead.removed_jobs r
        where r.tenant_id = coalesce(u.tenant_id, a.tenant_id)
            and r.definition_id = coalesce(u.definition_id, a.definition_id))
    group by tenant_id, definition_id
) per_definition
where used <> ran;
