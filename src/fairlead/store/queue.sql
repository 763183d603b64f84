-- A lease is (job, attempt, token). Every write after the claim names all three, so a worker that lost its lease
-- changes nothing. The transaction that deletes the lease owns the transition.

-- name: claim
select fairlead.claim(
    worker => %(worker)s, token => %(token)s, wanted => %(wanted)s, lease_seconds => %(lease_seconds)s,
    served => %(served)s, at_tenant => %(at_tenant)s, credit => %(credit)s, host => %(host)s,
    served_pairs => %(served_pairs)s, labels => %(labels)s, most_slots => %(most_slots)s,
    prefer_seconds => %(prefer_seconds)s)::text;

-- name: claim_with_waits
select fairlead.claim(
    worker => %(worker)s, token => %(token)s, wanted => %(wanted)s, lease_seconds => %(lease_seconds)s,
    served => %(served)s, at_tenant => %(at_tenant)s, credit => %(credit)s, host => %(host)s,
    served_pairs => %(served_pairs)s, labels => %(labels)s, most_slots => %(most_slots)s,
    prefer_seconds => %(prefer_seconds)s, with_waits => true)::text;

-- name: claim_suspect
select fairlead.claim_suspect(
    worker => %(worker)s, token => %(token)s, lease_seconds => %(lease_seconds)s, served => %(served)s,
    served_pairs => %(served_pairs)s, idle => %(idle)s, with_waits => %(with_waits)s,
    only_look => %(only_look)s, labels => %(labels)s, most_slots => %(most_slots)s)::text;

-- name: heartbeat
-- Leases that are not returned are lost. It never waits: a lease that a finish has locked is returned unrenewed, and its
-- owner soon sends the next heartbeat (a wait with other leases locked could deadlock with a finish). Log writes and
-- cancels take key share locks, which do not conflict with this one.
with mine as materialized (
    select o.at, o.job_id, free.spot
    from unnest(%(jobs)s::uuid[], %(attempts)s::int[], %(tokens)s::uuid[]) with ordinality
        as o(job_id, attempt_no, token, at)
    cross join lateral (
        select from fairlead.leases l
        where l.job_id = o.job_id and l.attempt_no = o.attempt_no and l.token = o.token
            and l.expires_at > clock_timestamp()
        limit 1) held
    left join lateral (
        select l.ctid as spot from fairlead.leases l
        where l.job_id = o.job_id and l.token = o.token and l.expires_at > clock_timestamp()
        limit 1 for no key update skip locked) free on true
), renewed as (
    update fairlead.leases set expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
    where ctid = any(array(select spot from mine))
)
select m.at, m.spot is not null as renewed, j.cancel_requested_at is not null as cancel
from mine m cross join lateral (
    select cancel_requested_at from fairlead.job_records where id = m.job_id limit 1) j;

-- name: finish
-- Jobs that are not returned had lost their leases. After a cancel request, every end but a success is a cancel.
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
    from jsonb_to_recordset(%(ends)s) as o(
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
-- <note failures>
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
    select c.tenant_id, %(actor)s, c.action, 'job', c.id::text,
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
        where g.event_name like 'job.%%' and g.is_enabled and g.deleted_at is null)
    then fairlead.tell_ends(array(select row(id, tenant_id, status)::fairlead.job_end from changed)) end,
    case when count(limit_key) > 0
        then fairlead.release_keys(array_agg(definition_id), array_agg(tenant_id), array_agg(limit_key), false) end
from changed;

-- name: note_failures
-- A part of `finish`, only for batches in which a job fails for good: in the same statement, so that no failure is missed.
-- One row without an index; the duty `failures` does the rest. See error_groups.sql.
), noted as (
    insert into fairlead.failures (job_id, attempt_no, tenant_id)
    select id, attempt_no, tenant_id from changed where status in ('failed', 'dead_letter')

-- name: succeed
-- `finish` for attempts that succeeded and have nothing to record but their output: nearly all of them, and for half the
-- price: their jobs' records are their attempts. A null list of outputs means that none has one. The audit log gets one row for those of a tenant and a
-- definition: see fairlead.audit_entries. Returns the number of jobs, and which they were if some had lost their leases.
with moment as materialized (
    select clock_timestamp() as now
), ended as (
    delete from fairlead.leases l
    using unnest(%(jobs)s::uuid[], %(attempts)s::int[], %(tokens)s::uuid[], %(outputs)s::text[])
        as o(job_id, attempt_no, token, output)
    where l.job_id = o.job_id and l.attempt_no = o.attempt_no and l.token = o.token
    returning l.job_id, l.attempt_no, l.token, l.tenant_id, l.definition_id, l.worker_id, l.started_at, l.queue_ms,
        l.progress, l.limit_key, o.output::jsonb as output
), changed as (
    update fairlead.job_records j
    set status = 'succeeded', attempt_count = e.attempt_no, started_at = e.started_at, claimed_by_worker = e.worker_id,
        progress = e.progress, troubled = false, finished_at = (select now from moment), output = e.output, error = null,
        success_token = e.token
    from ended e where j.id = e.job_id
    returning j.id, j.tenant_id, j.definition_id, j.dedupe_key, j.parent_id, e.limit_key
), freed as (
    delete from fairlead.active_keys where ctid = any(array(
        select held.spot from changed c cross join lateral (
            select k.ctid as spot from fairlead.active_keys k
            where k.tenant_id = c.tenant_id and k.key_hash = sha256(convert_to(c.dedupe_key, 'UTF8'))
                and k.job_id = c.id and coalesce(k.unique_until <= clock_timestamp(), true)
            limit 1) held
        where c.dedupe_key is not null))
), counted as (
    insert into fairlead.counts (
        tenant_id, definition_id, minute, running, succeeded, runs, retried, run_ms, queue_ms, cost_cents, lost)
    select tenant_id, definition_id, (select date_trunc('minute', now) from moment), -count(*), count(*), count(*), 0,
        sum(greatest(0, date_part('epoch', (select now from moment) - started_at) * 1000)::bigint::float8),
        coalesce(sum(queue_ms::float8), 0), 0, 0
    from ended group by tenant_id, definition_id
), named as materialized (
    select d.id, d.key, d.audit_action from fairlead.job_definitions d
    where d.id = any(array(select distinct definition_id from ended))
), audited as (
    insert into fairlead.audit_log (tenant_id, actor, action, resource_type, jobs, attempts, details)
    select e.tenant_id, %(actor)s, d.audit_action, 'job', array_agg(e.job_id), array_agg(e.attempt_no),
        jsonb_build_object('definition_key', d.key)
    from ended e join named d on d.id = e.definition_id
    where d.audit_action is not null
    group by e.tenant_id, d.audit_action, d.key
)
select count(*), case when count(*) < cardinality(%(jobs)s::uuid[]) then coalesce(array_agg(id), '{}') end,
    case when count(parent_id) > 0 or exists (
        select from fairlead.job_triggers g
        where g.event_name like 'job.%%' and g.is_enabled and g.deleted_at is null)
    then fairlead.tell_ends(array(select row(id, tenant_id, 'succeeded')::fairlead.job_end from changed)) end,
    case when count(limit_key) > 0
        then fairlead.release_keys(array_agg(definition_id), array_agg(tenant_id), array_agg(limit_key), false) end
from changed;

-- name: finished_before
-- Of leases that are gone: those that the same report ended, whose answer was lost. Nothing changes. An attempt that
-- another process ended differs from the report: it is `lost`, or `released` if it had not begun, or `canceled` without
-- the report's message.
select json_object_agg(j.id, j.status)::text
from jsonb_to_recordset(%(ends)s) as o(job_id uuid, attempt_no int, token uuid, attempt_status text, message text)
cross join lateral (
    select from fairlead.attempts a
    where a.job_id = o.job_id and a.attempt_no = o.attempt_no and a.token = o.token
        and a.status <> 'lost'
        and (a.status = coalesce(o.attempt_status, 'succeeded')
            or a.status = 'canceled' and o.attempt_status is not null and a.error_text is not distinct from o.message)
    limit 1) ended
cross join lateral (select id, status from fairlead.jobs where id = o.job_id limit 1) j;

-- name: joined_end
-- What became of an attempt that its handler ended in a transaction of its own: `ended`, if it committed; `held`, if it was
-- rolled back; `open`, if it has not ended, or another statement has locked the lease for a moment; else `gone`.
select case
    when exists (
        select from fairlead.attempts a
        where a.job_id = %(job_id)s and a.attempt_no = %(attempt_no)s and a.token = %(token)s and a.status = 'succeeded')
        then 'ended'
    when free.there then 'held'
    when exists (
        select from fairlead.leases l
        where l.job_id = %(job_id)s and l.attempt_no = %(attempt_no)s and l.token = %(token)s)
        then 'open'
    else 'gone' end
from (select) as one
left join lateral (
    select true as there from fairlead.leases l
    where l.job_id = %(job_id)s and l.attempt_no = %(attempt_no)s and l.token = %(token)s
    limit 1 for key share skip locked) free on true;

-- name: identity
select fairlead.database_identity();

-- name: stage
-- Moves due jobs to ready. Returns their number. The time is a sub-select, so that the index ends where the due jobs end: a
-- volatile function would be compared with each job that is due later, a million of sleeping functions for instance.
with due as (
    delete from fairlead.later where ctid = any(array(
        select l.ctid from fairlead.later l where not l.alone and not l.held and l.due_at <= (select clock_timestamp())
        order by l.due_at, l.job_id limit %(limit)s for update skip locked))
    returning job_id, tenant_id, definition_id, host_id, priority, due_at, limit_key
), moved as (
    insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
    select job_id, tenant_id, definition_id, host_id, priority, due_at, limit_key from due
    returning 1
)
select (select count(*) from moved) + coalesce((
    -- and lets go jobs of keys whose rates allow it again
    select fairlead.release_keys(array_agg(b.definition_id), array_agg(b.tenant_id), array_agg(b.limit_key))
    from (
        select b.definition_id, b.tenant_id, b.limit_key from fairlead.rate_buckets b
        where b.wake_at <= (select clock_timestamp()) order by b.wake_at limit %(limit)s) b
    having count(*) > 0), 0) as moved;

-- name: expire
-- Cancels jobs that have not started in time: functions/expire_jobs.sql.
select done, canceled, released from fairlead.expire_jobs(%(limit)s);

-- name: next_due
-- Seconds until the next waiting job falls due, or the rate of a key allows the next start, and until the next job expires;
-- null if nothing waits.
select extract(epoch from least((
        select l.due_at from fairlead.later l where not l.alone and not l.held order by l.due_at, l.job_id limit 1), (
        select b.wake_at from fairlead.rate_buckets b where b.wake_at is not null order by b.wake_at limit 1))
    - clock_timestamp())::float8, extract(epoch from (
        select e.expires_at from fairlead.expiries e order by e.expires_at, e.job_id limit 1) - clock_timestamp())::float8;

-- name: waiting_weight
-- The sum of the weights of the tenants that a claim could serve: for workers that serve several cells. The cost is the
-- number of pairs of tenant and definition, whatever the number of jobs.
with recursive walk as (
    (select r.tenant_id, r.definition_id, 1 as n from fairlead.ready r where r.host_id is null
     order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1)
    union all
    select hop.tenant_id, hop.definition_id, w.n + 1 from walk w cross join lateral (
        select r.tenant_id, r.definition_id from fairlead.ready r
        where r.host_id is null and (r.tenant_id, r.definition_id) > (w.tenant_id, w.definition_id)
        order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1) hop
    where w.n < %(most)s
)
select coalesce(sum(t.weight), 0) from fairlead.tenants t
where t.id = any(array(
        select w.tenant_id from walk w join fairlead.job_definitions d on d.id = w.definition_id
        where d.paused_at is null and (d.requires is null or d.requires <@ %(labels)s) and (%(served)s::uuid[] is null or d.id = any(%(served)s::uuid[])
            or d.id || ' ' || w.tenant_id = any(%(served_pairs)s::text[]))))
    and t.paused_at is null
    and (t.max_running is null or t.max_running > fairlead.running_in('tenant', t.id, null));

-- name: of_claims
-- The leases of claims whose answers were lost, by their tokens.
select l.job_id, l.attempt_no, l.token, j.workflow_run_id is not null or d.key = %(engine_run)s as of_run,
    l.probation_until is not null as is_suspect
from fairlead.leases l
join fairlead.job_records j on j.id = l.job_id join fairlead.job_definitions d on d.id = l.definition_id
where l.worker_id = %(worker)s and l.token = any(%(tokens)s::uuid[]);

-- name: progress
-- The progress of attempts. A lost lease changes nothing, and its job is not returned.
update fairlead.leases l set progress = p.progress
from jsonb_to_recordset(%(steps)s) as p(job_id uuid, attempt_no int, token uuid, progress jsonb)
where l.job_id = p.job_id and l.attempt_no = p.attempt_no and l.token = p.token and l.expires_at > clock_timestamp()
returning l.job_id;

-- name: again
-- Repeats what a claim returned of these jobs: its answer may have been lost.
select j.id, l.attempt_no, j.payload, j.max_attempts, j.failure_count, j.lost_count, j.parent_id, j.correlation_id,
    t.id as tenant_id, t.slug, d.key, coalesce(j.timeout_seconds, d.timeout_seconds), d.backoff,
    d.secret_paths || coalesce(j.secret_paths, '{}'), fairlead.attempt_id(l.job_id, l.attempt_no) as run_id,
    d.slots
from unnest(%(jobs)s::uuid[], %(attempts)s::int[], %(tokens)s::uuid[]) with ordinality as o(job_id, attempt_no, token, n)
join fairlead.leases l on l.job_id = o.job_id and l.attempt_no = o.attempt_no and l.token = o.token
join fairlead.job_records j on j.id = l.job_id
join fairlead.tenants t on t.id = j.tenant_id
join fairlead.job_definitions d on d.id = j.definition_id
order by o.n;
