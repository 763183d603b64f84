-- Repairs. Each locks the job or run first and checks again under the lock, so that in a running system it changes only
-- rows that are still wrong.

-- name: hold
-- Skips a job that another transaction has locked. Returns its tenant.
select j.tenant_id from fairlead.job_records j where j.id = %(id)s for update skip locked;

-- name: exists
select from fairlead.jobs j where j.id = %(id)s;

-- name: queue_again
-- Puts a queued job that is in no hot table into ready or later.
with job as materialized (
    select j.id, j.tenant_id, j.definition_id, j.host_id, j.priority, j.scheduled_for, j.limit_key,
        j.scheduled_for > clock_timestamp() as waits
    from fairlead.job_records j
    where j.id = %(id)s and j.status = 'queued'
        and not exists (select from fairlead.ready r where r.job_id = j.id)
        and not exists (select from fairlead.later l where l.job_id = j.id)
        and not exists (select from fairlead.leases l where l.job_id = j.id)
), now_ready as (
    insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
    select id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key from job where not waits
), waiting as (
    insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, waits, limit_key)
    select id, tenant_id, definition_id, host_id, priority, scheduled_for, exists (
        select from fairlead.job_steps s where s.job_id = job.id and s.status = 'waiting'), limit_key
    from job where waits
)
select from job;

-- name: wake_function
-- Lets a durable function that sleeps run now. It is safe to wake one in vain: it sleeps again.
select j.tenant_id from fairlead.job_records j
where j.id = %(id)s and fairlead.wake_functions(array[j.id]) > 0;

-- name: set_limit_key
-- Gives a locked job's row in ready, later or leases the key of its record, and lets the next job of the other key go.
with job as materialized (
    select j.id, j.tenant_id, j.definition_id, j.limit_key from fairlead.job_records j where j.id = %(id)s
), was_ready as (
    update fairlead.ready r set limit_key = j.limit_key from job j, fairlead.ready old
    where r.job_id = j.id and old.ctid = r.ctid and r.limit_key is distinct from j.limit_key
    returning j.definition_id, j.tenant_id, old.limit_key as other_key
), was_later as (
    update fairlead.later l set limit_key = j.limit_key, held = l.held and j.limit_key is not null
    from job j, fairlead.later old
    where l.job_id = j.id and old.ctid = l.ctid and l.limit_key is distinct from j.limit_key
    returning j.definition_id, j.tenant_id, old.limit_key as other_key
), was_leased as (
    update fairlead.leases l set limit_key = j.limit_key from job j, fairlead.leases old
    where l.job_id = j.id and old.ctid = l.ctid and l.limit_key is distinct from j.limit_key
    returning j.definition_id, j.tenant_id, old.limit_key as other_key
)
select definition_id, tenant_id, other_key from was_ready
union all select definition_id, tenant_id, other_key from was_later
union all select definition_id, tenant_id, other_key from was_leased;

-- name: key_of_job
select j.definition_id, j.tenant_id, j.limit_key from fairlead.job_records j
where j.id = %(id)s and j.limit_key is not null;

-- name: release_key
select fairlead.release_keys(array[%(definition_id)s::uuid], array[%(tenant_id)s::uuid], array[%(limit_key)s::uuid]);

-- name: take_key
insert into fairlead.active_keys (tenant_id, key_hash, job_id)
select j.tenant_id, sha256(convert_to(j.dedupe_key, 'UTF8')), j.id from fairlead.jobs j
where j.id = %(id)s and j.status <= 'running' and j.dedupe_key is not null
on conflict do nothing;

-- name: free_keys
delete from fairlead.active_keys k
where k.job_id = %(id)s and k.unique_until is null and not exists (
    select from fairlead.jobs j where j.id = k.job_id and j.tenant_id = k.tenant_id and j.status <= 'running'
        and sha256(convert_to(j.dedupe_key, 'UTF8')) = k.key_hash)
returning k.tenant_id;

-- name: hold_counts
-- Two repairs of the same counts run one after the other.
select pg_advisory_xact_lock(hashtextextended('fairlead.repair counts ' || %(id)s::text, 0));

-- name: correct_counts
-- Inserts the differences between a tenant's counts and its jobs. Every change of a job changes the counts in the same
-- transaction, so the difference within one snapshot stays right whatever other transactions do. It is written to the
-- minute of the folded history, which no chart shows.
insert into fairlead.counts (
    tenant_id, definition_id, minute, queued, running, succeeded, failed, dead_letter, canceled)
select %(id)s, definition_id, to_timestamp(0), sum(queued), sum(running), sum(succeeded), sum(failed), sum(dead_letter),
    sum(canceled)
from (
    select c.definition_id, -c.queued as queued, -c.running as running, -c.succeeded as succeeded, -c.failed as failed,
        -c.dead_letter as dead_letter, -c.canceled as canceled
    from fairlead.counts c where c.leveled in (false, true) and c.tenant_id = %(id)s
    union all
    select j.definition_id, count(*) filter (where j.status = 'queued'), count(*) filter (where j.status = 'running'),
        count(*) filter (where j.status = 'succeeded'), count(*) filter (where j.status = 'failed'),
        count(*) filter (where j.status = 'dead_letter'), count(*) filter (where j.status = 'canceled')
    from fairlead.jobs j where j.tenant_id = %(id)s group by j.definition_id
) differences
group by definition_id
having sum(queued) <> 0 or sum(running) <> 0 or sum(succeeded) <> 0 or sum(failed) <> 0 or sum(dead_letter) <> 0
    or sum(canceled) <> 0;

-- name: recount_run
-- For a locked run: recounts what its steps wait for, from its jobs and steps. A running step without an active job waits
-- for one, its last job that ended: that job is returned, and the caller counts it down in the ordinary way.
with active as materialized (
    select s.place, count(j.id) filter (where j.status <= 'running' or e.job_id is not null) as jobs,
        (array_agg(j.id order by j.troubled desc, j.finished_at desc, j.id)
            filter (where j.status > 'running' and e.job_id is null))[1] as last
    from fairlead.workflow_steps s
    left join fairlead.jobs j on j.workflow_run_id = s.run_id and j.workflow_step = s.place
    -- these are counted down soon
    left join fairlead.ended_steps e on e.job_id = j.id
    where s.run_id = %(id)s group by s.place
), running as (
    update fairlead.workflow_steps s set remaining = greatest(a.jobs, 1)
    from active a
    where s.run_id = %(id)s and s.place = a.place and s.state = 'running' and (a.jobs > 0 or a.last is not null)
        and s.left_at is null  -- its jobs are still to be made
    returning s.place
), waiting as (
    update fairlead.workflow_steps s
    set pending = before.pending, ran = before.ran
    from fairlead.workflow_steps w cross join lateral (
        select count(*) filter (where b.state in ('waiting', 'running')) as pending,
            count(*) filter (where b.state not in ('waiting', 'running', 'skipped')) as ran
        from fairlead.workflow_steps b where b.run_id = w.run_id and b.place = any(w.before)) before
    where w.run_id = %(id)s and w.state = 'waiting' and not w.is_compensation
        and s.run_id = w.run_id and s.place = w.place
), run as (
    update fairlead.workflow_runs r set live = (
        select count(*) from fairlead.workflow_steps s where s.run_id = r.id and s.state = 'running')
    where r.id = %(id)s and r.status = 'running'
)
select j.id, j.status::text from active a join running r on r.place = a.place join fairlead.jobs j on j.id = a.last
where a.jobs = 0;
