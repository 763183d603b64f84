-- Checks that queue, record and counts agree, in pieces: each query is one statement, so one snapshot, and reads a bounded
-- number of rows. Every transition moves a job's row and its status together, so a difference within a snapshot is a fault.

-- name: jobs
-- Checks `look` jobs after a place, in the order of their ids: those that are not in the hot table that their status
-- requires. Returns the next place; null after the last jobs.
with looked as materialized (
    select j.id, j.tenant_id, j.definition_id, j.host_id, j.priority, j.scheduled_for, j.queued_at, j.status, j.dedupe_key,
        j.finished_at, j.troubled, j.attempt_count, j.started_at, j.limit_key
    from fairlead.job_records j where j.id > %(place)s order by j.id limit %(look)s
), stands as materialized (
    select j.*, leased.there as is_leased, waits.there as is_later, coalesce(free.there, hosted.there) as is_ready,
        waits.held, waits.sleeps, case when leased.there then leased.limit_key when waits.there then waits.limit_key
            when free.there then free.limit_key when hosted.there then hosted.limit_key
            else j.limit_key end as queue_key
    from looked j
    left join lateral (
        select true as there, l.limit_key from fairlead.leases l where l.job_id = j.id limit 1) leased on true
    left join lateral (
        select true as there, l.held, l.waits and l.due_at > clock_timestamp() as sleeps, l.limit_key from fairlead.later l where l.tenant_id = j.tenant_id and l.job_id = j.id limit 1) waits on true
    left join lateral (
        -- for each of the two times, since with a list of them PostgreSQL 16 and older would read all jobs of one time
        select true as there, r.limit_key
        from unnest(array[j.scheduled_for, greatest(j.scheduled_for, j.queued_at)]) as due(at)
        cross join lateral (
            select r.limit_key from fairlead.ready r
            where j.host_id is null and r.host_id is null and r.tenant_id = j.tenant_id
                and r.definition_id = j.definition_id and r.priority = j.priority
                and r.scheduled_for = due.at and r.job_id = j.id limit 1) r
        limit 1) free on true
    left join lateral (
        select true as there, r.limit_key
        from unnest(array[j.scheduled_for, greatest(j.scheduled_for, j.queued_at)]) as due(at)
        cross join lateral (
            select r.limit_key from fairlead.ready r
            where j.host_id is not null and r.host_id = j.host_id and r.tenant_id = j.tenant_id
                and r.definition_id = j.definition_id and r.priority = j.priority
                and r.scheduled_for = due.at and r.job_id = j.id limit 1) r
        limit 1) hosted on true
), faults as (
    select 'queued_without_row' as kind, id, 'is queued but not in ready or later as its row says, and has no lease' as problem
    from stands where status = 'queued' and is_later is null and is_ready is null and is_leased is null
    union all
    select 'other', id, 'is ' || status || ' but also in ' || concat_ws(', ', case when is_leased then 'leases' end,
        case when is_later then 'later' end, case when is_ready then 'ready' end)
    from stands
    where status <> 'queued' and (is_leased or is_later or is_ready)
        or is_leased and is_later or is_leased and is_ready or is_later and is_ready
    union all
    select 'other', id, 'is ' || status || ', which its times or its count of attempts contradict'
    from stands
    where status = 'running' or (status > 'running') <> (finished_at is not null) or (status > 'succeeded') <> troubled
        or (attempt_count > 0) <> (started_at is not null)
    union all
    select 'active_without_key', j.id, 'is active but does not hold its key'
    from stands j
    where j.status <= 'running' and j.dedupe_key is not null and not exists (
        select from fairlead.active_keys k
        where k.tenant_id = j.tenant_id and k.key_hash = sha256(convert_to(j.dedupe_key, 'UTF8')) and k.job_id = j.id)
    union all
    select 'limit_key', id, 'is limited by another key in the queue than in its record'
    from stands where status = 'queued' and queue_key is distinct from limit_key
    union all
    select 'sleeping_function', j.id, 'sleeps, and nothing that it waits for is open'
    from stands j
    where j.status = 'queued' and j.sleeps and not exists (
        select from fairlead.job_steps s where s.job_id = j.id and s.status = 'waiting')
    union all
    select 'sleeping_function', j.id, 'sleeps although a wait was completed'
    from stands j cross join lateral (
        select a.finished_at from fairlead.job_attempts a
        where a.job_id = j.id and a.attempt_no = j.attempt_count limit 1) a
    where j.status = 'queued' and j.sleeps and exists (
        -- an attempt that goes to sleep sees the waits that were completed before, and a later completion wakes the job
        select from fairlead.job_steps s
        where s.job_id = j.id and s.kind not in ('step', 'sleep') and s.status <> 'waiting' and s.ended_at > a.finished_at)
    union all
    select 'held_in_vain', j.id, 'is held back by its key, and nothing will let it go'
    from stands j
    cross join lateral (
        select coalesce((d.by_key -> 'fifo')::boolean, false) as fifo
        from fairlead.job_definitions d where d.id = j.definition_id) d
    where j.status = 'queued' and j.held
        and not exists (
            select from fairlead.leases k
            where k.definition_id = j.definition_id and k.tenant_id = j.tenant_id and k.limit_key = j.queue_key)
        and not exists (
            select from fairlead.ready k
            where k.definition_id = j.definition_id and k.tenant_id = j.tenant_id and k.limit_key = j.queue_key
                and (not d.fifo or k.job_id < j.id))
        -- of a key in strict order: it waits for an older job's retry
        and not exists (
            select from fairlead.later k
            where d.fifo and k.definition_id = j.definition_id and k.tenant_id = j.tenant_id and k.limit_key = j.queue_key
                and not k.held and k.job_id < j.id)
        and not exists (
            select from fairlead.rate_buckets k
            where k.definition_id = j.definition_id and k.tenant_id = j.tenant_id and k.limit_key = j.queue_key
                and k.wake_at is not null)
)
select case when (select count(*) from looked) = %(look)s then (select id from looked order by id desc limit 1) end as place,
    coalesce((select json_agg(json_build_object('kind', kind, 'id', id, 'problem', problem)) from faults), '[]')::text;

-- name: newest_place
-- The place before the newest `look` jobs; none if there are fewer.
select j.id from fairlead.jobs j order by j.id desc offset %(look)s limit 1;

-- name: leases
-- Leases of attempts that are not their jobs' running ones. Reads all leases: there are only as many as running jobs.
select 'other' as kind, l.job_id as id, 'is leased for an attempt that is not its running one' as problem
from fairlead.leases l
where not exists (
    select from fairlead.job_records j where j.id = l.job_id and j.attempt_count = l.attempt_no - 1)
    or exists (select from fairlead.job_attempts a where a.job_id = l.job_id and a.attempt_no = l.attempt_no);

-- name: keys
-- Checks `look` dedupe keys in use after a place: those whose job has ended, or has another key. Keys that are kept for a
-- time may outlive their jobs.
with looked as materialized (
    select k.tenant_id, k.key_hash, k.job_id, k.unique_until from fairlead.active_keys k
    where (k.tenant_id, k.key_hash) > (%(tenant_id)s, %(key_hash)s)
    order by k.tenant_id, k.key_hash limit %(look)s
), last as (
    select tenant_id, key_hash from looked order by tenant_id desc, key_hash desc limit 1
), faults as (
    select k.job_id from looked k
    where k.unique_until is null and not exists (
        select from fairlead.jobs j where j.id = k.job_id and j.tenant_id = k.tenant_id and j.status <= 'running'
            and sha256(convert_to(j.dedupe_key, 'UTF8')) = k.key_hash)
)
select case when (select count(*) from looked) = %(look)s then (select tenant_id from last) end as tenant_id,
    (select key_hash from last) as key_hash,
    coalesce((select json_agg(json_build_object('kind', 'stale_key', 'id', job_id,
        'problem', 'holds an active key but is not active')) from faults), '[]')::text;

-- name: runs
-- Checks `look` runs after a place: those whose counters differ from their steps and jobs.
with looked as materialized (
    select r.id, r.status, r.live from fairlead.workflow_runs r
    where r.id > %(place)s order by r.id limit %(look)s
), step as materialized (
    select s.run_id, s.place, s.name, s.state, s.remaining, s.pending, s.before, s.is_compensation, s.left_at, r.status
    from looked r join fairlead.workflow_steps s on s.run_id = r.id
), faults as (
    select 'run_counters' as kind, r.id,
        'goes on with ' || r.live || ' steps live, and ' || count(s.run_id) || ' run' as problem
    from looked r left join step s on s.run_id = r.id and s.state = 'running'
    group by r.id, r.live, r.status having r.live <> count(s.run_id) or (r.status = 'running') <> (count(s.run_id) > 0)
    union all
    select 'run_counters', s.run_id,
        'step ' || s.name || ' waits for ' || s.remaining || ' jobs, and ' || active.jobs || ' are active'
    from step s cross join lateral (
        select count(*) as jobs from fairlead.jobs j
        where j.workflow_run_id = s.run_id and j.workflow_step = s.place and (
            j.status <= 'running'
            -- the run will be advanced soon
            or exists (select from fairlead.ended_steps e where e.job_id = j.id))) active
    where s.remaining <> active.jobs and s.left_at is null
    union all
    select 'run_counters', s.run_id,
        'step ' || s.name || ' waits for ' || s.pending || ' steps, and ' || before.steps || ' are not over'
    from step s cross join lateral (
        select count(*) as steps from step b
        where b.run_id = s.run_id and b.place = any(s.before) and b.state in ('waiting', 'running')) before
    where s.status = 'running' and s.state = 'waiting' and not s.is_compensation and s.pending <> before.steps
)
select case when (select count(*) from looked) = %(look)s then (select id from looked order by id desc limit 1) end as place,
    coalesce((select json_agg(json_build_object('kind', kind, 'id', id, 'problem', problem)) from faults), '[]')::text;

-- name: newest_run
select r.id from fairlead.workflow_runs r order by r.id desc offset %(look)s limit 1;

-- name: levels
-- Tenants whose counts of queued and running jobs differ from the hot tables. Its cost grows only with unfinished work.
select 'counts' as kind, level.tenant_id as id,
    'counts of ' || one.status || ' say ' || one.counted || ' where there are ' || one.there as problem
from (
    select tenant_id, definition_id, sum(queued) as queued, sum(running) as running, sum(waits) as waits, sum(runs) as runs
    from (
        select c.tenant_id, c.definition_id, c.queued, c.running, 0 as waits, 0 as runs from fairlead.counts c
        union all
        select r.tenant_id, r.definition_id, 0, 0, 1, 0 from fairlead.ready r
        union all
        select l.tenant_id, l.definition_id, 0, 0, 1, 0 from fairlead.later l
        union all
        select l.tenant_id, l.definition_id, 0, 0, 0, 1 from fairlead.leases l
    ) both_sides
    group by tenant_id, definition_id
) level
cross join lateral (
    values ('queued', level.queued, level.waits), ('running', level.running, level.runs)) as one(status, counted, there)
where one.counted <> one.there;

-- name: tenants
-- Not those whose rows are being removed.
select t.id from fairlead.tenants t where t.placement <> 'moved' order by t.id;

-- name: counts
-- For one tenant: compares counts by status with its jobs, and usage with its attempts (only if no job has been removed,
-- since usage stays).
select 'counts' as kind, %(tenant_id)s::uuid as id,
    'counts of ' || status || ' say ' || counted || ' where there are ' || there as problem
from (
    select definition_id, status, sum(counted) as counted, sum(there) as there
    from (
        select c.definition_id, s.status, s.counted, 0 as there
        from fairlead.counts c, lateral (values
            ('queued', c.queued), ('running', c.running), ('succeeded', c.succeeded), ('failed', c.failed),
            ('dead_letter', c.dead_letter), ('canceled', c.canceled)) as s(status, counted)
        where c.leveled in (false, true) and c.tenant_id = %(tenant_id)s
        union all
        select j.definition_id, j.status::text, 0, count(*) from fairlead.jobs j
        where j.tenant_id = %(tenant_id)s group by j.definition_id, j.status
    ) both_sides
    group by definition_id, status
) per_status
where counted <> there
union all
select 'other', %(tenant_id)s::uuid, 'usage says ' || used::text || ' where the attempts say ' || ran::text
from (
    select jsonb_build_object('runs', u.runs, 'run_ms', u.run_ms, 'queue_ms', u.queue_ms, 'cost_cents', u.cost_cents) as used,
        jsonb_build_object('runs', a.runs, 'run_ms', a.run_ms, 'queue_ms', a.queue_ms, 'cost_cents', a.cost_cents) as ran
    from (
        select definition_id, sum(runs) as runs, sum(run_ms) as run_ms, sum(queue_ms) as queue_ms,
            sum(cost_cents) as cost_cents
        from (
            select definition_id, runs, run_ms, queue_ms, cost_cents from fairlead.usage_hourly
            where tenant_id = %(tenant_id)s
            union all
            select definition_id, runs, run_ms, queue_ms, cost_cents from fairlead.counts
            where leveled in (false, true) and tenant_id = %(tenant_id)s and runs is not null
        ) parts
        group by definition_id
    ) u
    full join (
        select j.definition_id, count(*) as runs, sum(coalesce(a.duration_ms, 0)) as run_ms,
            sum(coalesce(a.queue_ms, 0)) as queue_ms, sum(a.cost_cents) as cost_cents
        from fairlead.jobs j join fairlead.attempts a on a.job_id = j.id
        where j.tenant_id = %(tenant_id)s and a.status <> 'running'
        group by j.definition_id
    ) a using (definition_id)
    where not exists (
        select from fairlead.removed_jobs r
        where r.tenant_id = %(tenant_id)s and r.definition_id = definition_id)
) per_definition
where used <> ran;
