-- A run's row is its lock: a transaction that ends, cancels or retries a job of the run locks the row first, and only then
-- changes its steps. `live` is the number of running steps; at 0 the run ends.

-- name: hold_key
-- Two publications of the same workflow run one after the other.
select pg_advisory_xact_lock(hashtextextended('fairlead.workflow ' || %(tenant_id)s::text || ' ' || %(key)s, 0));

-- name: newest
-- The newest version of a tenant's own workflow, else of the shared one.
select w.id, w.tenant_id,
    case when w.is_shared then 'global' else (select t.slug from fairlead.tenants t where t.id = w.tenant_id) end as tenant,
    w.is_shared, w.key, w.version, w.spec, w.secret_paths, w.created_by, w.created_at
from fairlead.workflows w
where w.key = %(key)s and (w.tenant_id = %(tenant_id)s or (w.is_shared and %(or_shared)s))
    and (%(version)s::int is null or w.version = %(version)s)
order by w.is_shared, w.version desc limit 1;

-- name: add
insert into fairlead.workflows (tenant_id, is_shared, key, version, spec, secret_paths, created_by)
select %(tenant_id)s, %(is_shared)s, %(key)s, 1 + coalesce(max(w.version), 0), %(spec)s, %(secret_paths)s, %(created_by)s
from fairlead.workflows w where w.tenant_id = %(tenant_id)s and w.key = %(key)s
returning id, tenant_id,
    case when is_shared then 'global' else (select t.slug from fairlead.tenants t where t.id = workflows.tenant_id) end as tenant,
    is_shared, key, version, spec, secret_paths, created_by, created_at;

-- name: listed
-- The newest version of each workflow that a tenant can start, its own before a shared one; or (null) of all tenants.
select distinct on (w.key, case when %(tenant_id)s::uuid is null then w.tenant_id end)
    w.id, w.tenant_id,
    case when w.is_shared then 'global' else (select t.slug from fairlead.tenants t where t.id = w.tenant_id) end as tenant,
    w.is_shared, w.key, w.version, w.spec, w.secret_paths, w.created_by, w.created_at
from fairlead.workflows w
where (%(tenant_id)s::uuid is null or w.tenant_id = %(tenant_id)s or w.is_shared)
    and (w.key > %(after)s
        or w.key = %(after)s and %(tenant_id)s::uuid is null and w.tenant_id > %(after_tenant)s::uuid)
order by w.key, case when %(tenant_id)s::uuid is null then w.tenant_id end, w.is_shared, w.version desc limit %(limit)s;

-- name: start
-- Its first steps run with one job each; `correct` may change that. `linked` has the places of other steps: a step's
-- are those from one index to another, and steps with the same neighbours share them. Returns no row if there is a run with
-- this key.
with run as (
    insert into fairlead.workflow_runs (
        id, tenant_id, workflow_id, key, version, steps, live, parent_job_id, started_by_job, depth, unique_key,
        correlation_id, input, output_template, secret_paths, created_by, root_run_id)
    values (
        %(id)s, %(tenant_id)s, %(workflow_id)s, %(key)s, %(version)s, %(steps)s, %(live)s, %(parent_job_id)s,
        %(started_by_job)s, %(depth)s, %(unique_key)s, %(correlation_id)s, %(input)s, %(output_template)s,
        %(secret_paths)s, %(created_by)s, fairlead.root_run_of(%(started_by_job)s))
    on conflict (tenant_id, unique_key) where unique_key is not null do nothing
    returning id, tenant_id
), steps as (
    insert into fairlead.workflow_steps (
        run_id, place, tenant_id, name, definition_key, spec, checked_version, before, next, on_failure, compensation,
        is_compensation, pending, state, remaining, started_at)
    select run.id, s.place - 1, run.tenant_id, s.name, s.definition_key, s.spec::jsonb, nullif(s.checked_version, -1),
        (%(linked)s::int[])[s.before_from:s.before_to], (%(linked)s::int[])[s.next_from:s.next_to], s.on_failure,
        nullif(s.compensation, -1), s.is_compensation = 1, s.before_to - s.before_from + 1,
        case when s.is_first = 1 then 'running' else 'waiting' end, s.is_first,
        case when s.is_first = 1 then clock_timestamp() end
    from run, unnest(
        %(names)s::text[], %(definition_keys)s::text[], %(specs)s::text[], %(on_failures)s::text[],
        %(checked_versions)s::int[], %(before_from)s::int[], %(before_to)s::int[], %(next_from)s::int[], %(next_to)s::int[],
        %(compensations)s::int[], %(are_compensations)s::int[], %(are_first)s::int[]) with ordinality as s(
        name, definition_key, spec, on_failure, checked_version, before_from, before_to, next_from, next_to, compensation,
        is_compensation, is_first, place)
)
select id from run;

-- name: with_unique_key
select r.id from fairlead.workflow_runs r where r.tenant_id = %(tenant_id)s and r.unique_key = %(unique_key)s;

-- name: depth_below
-- The nesting depth of a run that a job waits for: one more than that of the job's own run.
select r.depth + 1 from fairlead.jobs j join fairlead.workflow_runs r on r.id = j.workflow_run_id where j.id = %(job_id)s;

-- name: hold_running
-- Locks a running job until the transaction ends; a second caller waits. Returns no row if it does not run.
-- A job that ended while this waited has one more ended attempt, and its lease does not fit any more.
select from fairlead.job_records j join fairlead.leases l on l.job_id = j.id and l.attempt_no = j.attempt_count + 1
where j.id = %(job_id)s for update of j;

-- name: of_job
-- The run that a job waits for.
select r.id from fairlead.workflow_runs r where r.parent_job_id = %(job_id)s order by r.id desc limit 1;

-- name: begin_roots
-- Marks the steps that wait for no other step as running with one job each; `correct` may change that.
with begun as (
    update fairlead.workflow_steps s set state = 'running', remaining = 1, started_at = clock_timestamp()
    where s.run_id = %(run_id)s and s.state = 'waiting' and s.pending = 0 and not s.is_compensation
    returning s.run_id, s.place, s.ran
), run as (
    update fairlead.workflow_runs r set live = r.live + (select count(*) from begun)
    where r.id = %(run_id)s
)
select count(*), array_agg(b.place), array_agg(b.ran) from begun b;

-- name: release_begun
select fairlead.release_steps(%(runs)s::uuid[], %(places)s::int[], %(ran)s::int[], %(settings)s)::text;

-- name: hold
select r.id, r.tenant_id, t.slug as tenant, t.name as tenant_name, t.timezone as tenant_timezone, r.key, r.version,
    r.status, r.live, r.failing, r.cancel_requested_at is not null as is_canceling, r.parent_job_id, r.correlation_id,
    r.input, r.output_template, r.error, r.secret_paths, r.answered
from fairlead.workflow_runs r join fairlead.tenants t on t.id = r.tenant_id
where r.id = any(%(ids)s) order by r.id for update of r;

-- name: waited_for_by
select r.id, r.parent_job_id from fairlead.workflow_runs r
where r.parent_job_id = any(%(ids)s) order by r.id;

-- name: runs_of
-- The run that each of these jobs is a step of, if any.
select j.id, j.workflow_run_id from fairlead.jobs j where j.id = any(%(ids)s);

-- name: move_on
select fairlead.move_on(%(ended)s, %(over)s, %(settings)s)::text;

-- name: correct
-- The states of free steps that are not exactly one job: they ended at once, or have many jobs.
update fairlead.workflow_steps s
set state = b.state, items = b.items, remaining = b.remaining, failed = b.failed, canceled = b.canceled, error = b.error,
    started_at = case when b.state <> 'skipped' then s.started_at end,
    finished_at = case when b.state <> 'running' then clock_timestamp() end
from jsonb_to_recordset(%(begun)s) as b(
    run_id uuid, place int, state text, items int, remaining int, failed int, canceled int, error jsonb)
where s.run_id = b.run_id and s.place = b.place;

-- name: leave
-- Steps whose jobs another transaction makes.
update fairlead.workflow_steps s set left_at = clock_timestamp()
from unnest(%(runs)s::uuid[], %(places)s::int[]) as l(run_id, place)
where s.run_id = l.run_id and s.place = l.place;

-- name: lock_left
-- Locks the run of the step that was left first, of the next tenant after `after`, in the order of an index. A tenant that is being moved is left to
-- its new cell, and what may need a key to a process that has one.
select s.run_id, s.tenant_id, s.place, s.ran
from fairlead.workflow_steps s join fairlead.workflow_runs r on r.id = s.run_id
where s.left_at is not null and s.tenant_id > %(after)s
    and not s.tenant_id = any(%(but)s::uuid[])
    and not s.tenant_id = any(array(select t.id from fairlead.tenants t where t.placement <> 'here'))
    and (%(has_key)s or r.secret_paths = '{}' and strpos(s.spec::text, %(mark)s) = 0 and s.definition_key <> %(engine_run)s
        and not exists (
            select from fairlead.job_definitions d where d.key = s.definition_key and d.secret_paths <> '{}'))
order by s.tenant_id, s.left_at limit 1
for update of r skip locked;

-- name: any_left
select from fairlead.workflow_steps s where s.left_at is not null limit 1;

-- name: take_left
-- In a locked run: no longer left, all or one.
update fairlead.workflow_steps s set left_at = null
where s.run_id = %(run_id)s and s.left_at is not null and (%(place)s::int is null or s.place = %(place)s)
returning s.place;

-- name: targets
-- The hosts and resources of these payloads, in their order. Locks the hosts against removal.
with asked as materialized (
    select a.at, t.target_host, t.target_resource, t.refusal
    from jsonb_array_elements(%(payloads)s) with ordinality as a(payload, at)
    cross join lateral fairlead.target_of(
        %(tenant_id)s, %(definition_id)s, a.payload, %(host_id)s::uuid, %(resource_id)s::uuid) t
), held as materialized (
    select h.id from fairlead.hosts h
    where h.id = any(array(select distinct a.target_host from asked a)) order by h.id for key share
)
select a.target_host as host_id, a.target_resource as resource_id,
    coalesce(a.refusal, case when a.target_host is not null and h.id is null then 'host_unknown' end) as refusal
from asked a left join held h on h.id = a.target_host order by a.at;

-- name: release
select fairlead.add_step_jobs(array(
    select n from jsonb_populate_recordset(null::fairlead.step_job, %(jobs)s) n));

-- name: ends
-- The ends of steps, for the templates that use them: with outputs, of a for_each step all of them in order.
select s.run_id, s.name, s.state as status,
    case when s.items is null then last.output
        -- null if together they are too large for one value
        when (
            select coalesce(sum(octet_length(j.output::text)), 0) <= %(most)s from fairlead.jobs j
            where j.workflow_run_id = s.run_id and j.workflow_step = s.place)
        then coalesce((
            select jsonb_agg(one.output order by item.number)
            from generate_series(0, s.items - 1) as item(number) left join lateral (
                select j.output from fairlead.jobs j
                where j.workflow_run_id = s.run_id and j.workflow_step = s.place and j.workflow_item = item.number
                order by j.id desc limit 1) one on true), '[]') end as output,
    coalesce(s.error ->> 'message', last.last_error, case when s.failed + s.canceled > 0 then (
        select j.last_error from fairlead.jobs j
        where j.workflow_run_id = s.run_id and j.workflow_step = s.place and j.troubled
        order by j.workflow_item limit 1) end) as error,
    s.items is not null as of_items
from unnest(%(runs)s::uuid[], %(names)s::text[]) as e(run_id, name)
cross join lateral (
    select * from fairlead.workflow_steps s where s.run_id = e.run_id and s.name = e.name limit 1) s
left join lateral (
    select j.output, j.last_error from fairlead.jobs j
    where s.items is null and j.workflow_run_id = s.run_id and j.workflow_step = s.place
    order by j.workflow_item, j.id desc limit 1) last on true;

-- name: items_done
select j.workflow_item from fairlead.jobs j
where j.workflow_run_id = %(run_id)s and j.workflow_step = %(place)s and j.status = 'succeeded';

-- name: leaves
-- The steps that no other step waits for.
select s.name from fairlead.workflow_steps s
where s.run_id = %(run_id)s and cardinality(s.next) = 0 and not s.is_compensation order by s.place;

-- name: stored_output
-- The stored bytes of the outputs of those steps.
select coalesce(sum(pg_column_size(j.output)), 0)::bigint
from fairlead.workflow_steps s join fairlead.jobs j on j.workflow_run_id = s.run_id and j.workflow_step = s.place
where s.run_id = %(run_id)s and cardinality(s.next) = 0 and not s.is_compensation;

-- name: end
with run as (
    update fairlead.workflow_runs
    set status = %(status)s, live = 0, failing = %(failing)s, output = %(output)s, error = %(error)s,
        finished_at = clock_timestamp()
    where id = %(id)s
    returning id, tenant_id, key
)
update fairlead.workflow_steps s
set state = case when s.is_compensation then 'skipped' else 'stopped' end, finished_at = clock_timestamp()
from run where s.run_id = run.id and s.state = 'waiting';

-- name: tell_end
-- Stores an event, if a trigger of the run's tenant listens.
select fairlead.tell_run_end(%(id)s, %(failed_step)s, %(last_error)s);

-- name: wake
-- Makes the job that waits for a run ready; a job that runs or has ended is left alone. A transaction that has locked its
-- row cancels or stages it, and may wait for the run that we hold: so this does not wait, and a duty looks again.
with job as (
    select j.id, j.scheduled_for from fairlead.job_records j where j.id = %(job_id)s and j.status = 'queued'
), asleep as (
    select l.job_id, l.due_at from job cross join lateral (
        select l.job_id, l.due_at from fairlead.later l where l.due_at = job.scheduled_for and l.job_id = job.id limit 1) l
), woken as (
    delete from fairlead.later l where l.ctid = any(array(
        select spot.ctid from asleep cross join lateral (
            select l.ctid from fairlead.later l where l.due_at = asleep.due_at and l.job_id = asleep.job_id
            limit 1 for update skip locked) spot))
    returning l.job_id, l.tenant_id, l.definition_id, l.host_id, l.priority, l.limit_key
), moved as (
    update fairlead.job_records j set scheduled_for = clock_timestamp() from woken w where j.id = w.job_id
    returning j.id, j.scheduled_for
), now_ready as (
    insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
    select w.job_id, w.tenant_id, w.definition_id, w.host_id, w.priority, m.scheduled_for, w.limit_key
    from woken w join moved m on m.id = w.job_id
), missed as (
    update fairlead.workflow_runs set parent_asleep = true
    where id = %(run_id)s and exists (select from asleep) and not exists (select from woken)
)
select from woken;

-- name: sleepers
-- Ended runs that could not wake the job that waits for them.
with found as (
    select r.id from fairlead.workflow_runs r where r.parent_asleep order by r.id limit %(limit)s for update skip locked
)
update fairlead.workflow_runs r set parent_asleep = false from found
where r.id = found.id returning r.id, r.parent_job_id;

-- name: ended_steps
-- Takes jobs of steps that have ended: the caller advances their runs in the same transaction. A tenant that is being moved
-- is left to its new cell.
with taken as (
    delete from fairlead.ended_steps where ctid = any(array(
        select e.ctid from fairlead.ended_steps e
        where not e.tenant_id = any(array(select t.id from fairlead.tenants t where t.placement <> 'here'))
        limit %(limit)s for update skip locked))
    returning job_id
)
select j.id, j.status from taken t join fairlead.job_records j on j.id = t.job_id;

-- name: leave_step
-- The run is advanced later, by a process that has the key of its secrets.
insert into fairlead.ended_steps (job_id, tenant_id)
select j.id, j.tenant_id from fairlead.job_records j where j.id = %(job_id)s on conflict do nothing;

-- name: ask_to_stop
update fairlead.workflow_runs set cancel_requested_at = clock_timestamp()
where id = %(id)s and cancel_requested_at is null;

-- name: active_jobs
select j.id from fairlead.jobs j where j.workflow_run_id = %(run_id)s and j.status <= 'running';

-- name: troubled_jobs
-- Locks the jobs of failed steps, to requeue them. Leaves out jobs whose host was removed, and locks the other hosts
-- against removal.
with host as materialized (
    select h.id from fairlead.hosts h
    where h.id = any(array(
        select distinct j.host_id from fairlead.jobs j where j.workflow_run_id = %(run_id)s and j.troubled))
    for key share
)
select j.id, j.workflow_step as place from fairlead.job_records j
join fairlead.workflow_steps s on s.run_id = j.workflow_run_id and s.place = j.workflow_step
where j.workflow_run_id = %(run_id)s and j.troubled and s.state in ('failed', 'canceled')
    and not s.is_compensation and (s.on_failure <> 'continue' or s.canceled > 0 and s.finished_at >= (
        select r.cancel_requested_at from fairlead.workflow_runs r where r.id = s.run_id))
    and (j.host_id is null or j.host_id in (select h.id from host h))
order by j.id for update of j;

-- name: forget_waits
-- Steps that wait, wait again: timeouts and rejections are forgotten, and so are waits that a cancel ended. A sleep keeps its
-- end, and an open approval stays.
delete from fairlead.job_steps s using fairlead.job_records j, fairlead.job_definitions d
where j.id = any(%(jobs)s) and d.id = j.definition_id and d.key = any(%(keys)s) and s.job_id = j.id and (
    s.status = 'timeout'
    or s.status = 'waiting' and (s.kind = 'event' or s.kind = 'approval' and s.due_at <= clock_timestamp())
    -- not from the result, which may be sealed
    or s.kind = 'approval' and exists (
        select from fairlead.approvals a where a.id = (s.request ->> 'approval_id')::uuid and a.status = 'rejected'));

-- name: reopen
-- Continues a run that failed or was canceled: failed steps run again, stopped steps wait for the steps before them.
-- Steps that failed while their run continued stay failed; steps that its cancel ended run again.
with run as (
    update fairlead.workflow_runs
    set status = 'running', failing = false, cancel_requested_at = null, finished_at = null, output = null, error = null,
        live = %(live)s, answered = false, parent_asleep = false
    where id = %(run_id)s returning id
), again as (
    select * from unnest(%(places)s::int[], %(jobs)s::int[]) as a(place, jobs)
), restarted as (
    select s.place, a.jobs from fairlead.workflow_steps s left join again a on a.place = s.place
    where s.run_id = %(run_id)s and (
        s.state = 'stopped' or s.is_compensation
        or s.state in ('failed', 'canceled') and (s.on_failure <> 'continue'
            or s.canceled > 0 and s.finished_at >= (
                select r.cancel_requested_at from fairlead.workflow_runs r where r.id = s.run_id)))
)
update fairlead.workflow_steps s
set state = case when r.jobs is null then 'waiting' else 'running' end,
    remaining = coalesce(r.jobs, 0), items = case when r.jobs is null then null else s.items end,
    -- jobs that could not be locked, or are gone, still count as failed
    failed = case when r.jobs is null then 0 else greatest(0, s.failed + s.canceled - r.jobs) end,
    canceled = 0, error = null, finished_at = null,
    started_at = case when r.jobs is null then null else s.started_at end,
    pending = (
        select count(*) from fairlead.workflow_steps b
        where b.run_id = s.run_id and b.place = any(s.before) and b.place in (select place from restarted)),
    ran = (
        select count(*) from fairlead.workflow_steps b
        where b.run_id = s.run_id and b.place = any(s.before) and b.state <> 'skipped'
            and b.place not in (select place from restarted))
from restarted r, run where s.run_id = run.id and s.place = r.place;

-- name: run
select r.id, r.tenant_id, t.slug as tenant, r.workflow_id, r.key, r.version, r.status, r.steps, r.live,
    r.cancel_requested_at, r.parent_job_id, r.started_by_job, r.correlation_id, r.input, r.output, r.error, r.secret_paths,
    r.created_by, r.created_at, r.finished_at
from fairlead.workflow_runs r join fairlead.tenants t on t.id = r.tenant_id
where

-- name: run_with_id
r.id = %(id)s and (%(tenant_id)s::uuid is null or r.tenant_id = %(tenant_id)s)

-- name: runs_page
(%(tenant_id)s::uuid is null or r.tenant_id = %(tenant_id)s)
    and (%(key)s::text is null or r.key = %(key)s) and (%(status)s::text is null or r.status = %(status)s)
    and (%(before)s::uuid is null or r.id < %(before)s)
order by r.id desc limit %(limit)s

-- name: run_steps
-- The steps of a run, each with its job; a for_each step with the first of its failed jobs. A step is queued when it is
-- released (the column started_at) and starts when a worker starts its first job. Its duration is the time in attempts; of
-- items and of other runs that it waits for, it is the time since the start.
select s.place, s.name, s.definition_key, s.spec, s.before, s.on_failure, s.compensation, s.is_compensation, s.state,
    s.items, s.remaining, s.failed, s.canceled, s.error, s.started_at as queued_at, began.at as started_at, s.finished_at,
    (took.whole - coalesce(took.ran, 0))::bigint as queue_ms, took.ran::bigint as duration_ms, last.id as job_id,
    last.status as job_status, last.attempt_count, last.last_error
from fairlead.workflow_steps s
left join lateral (
    select j.id, j.status, j.attempt_count, j.last_error from fairlead.jobs j
    where j.workflow_run_id = s.run_id and j.workflow_step = s.place
        and (s.items is null or s.failed > 0 and j.status in ('failed', 'dead_letter'))
    order by j.workflow_item, j.id desc limit 1) last on true
-- the first hundred attempts, or items: the others began later
left join lateral (
    select min(a.started_at) as at, sum(coalesce(a.duration_ms,
        greatest(0, date_part('epoch', clock_timestamp() - a.started_at) * 1000))) as ran
    from (
        select a.started_at, a.duration_ms from fairlead.attempts a
        where s.items is null and a.job_id = last.id order by a.attempt_no limit 100) a) attempts on true
left join lateral (
    select min(i.started_at) as at from (
        select j.started_at from fairlead.jobs j
        where s.items is not null and j.workflow_run_id = s.run_id and j.workflow_step = s.place
        order by j.workflow_item limit 100) i) items on true
cross join lateral (select coalesce(attempts.at, items.at) as at) began
cross join lateral (
    -- unknown if retention has removed its jobs
    select case when s.started_at is not null and (began.at is not null or last.id is not null or s.finished_at is null)
            then greatest(0, date_part('epoch', coalesce(s.finished_at, clock_timestamp()) - s.started_at) * 1000) end as whole,
        case when began.at is null or s.items is null and s.definition_key not like 'ENGINE\_%%' then attempts.ran
            else greatest(0, date_part('epoch', coalesce(s.finished_at, clock_timestamp()) - began.at) * 1000) end as ran) took
where s.run_id = %(run_id)s and s.place >= %(first)s
order by s.place limit %(limit)s;

-- name: names
select s.place, s.name from fairlead.workflow_steps s where s.run_id = %(run_id)s and s.place = any(%(places)s);

-- name: step_counts
select s.state, count(*) as steps from fairlead.workflow_steps s where s.run_id = %(run_id)s group by s.state;

-- name: gave_itself_back
select from fairlead.jobs j join fairlead.job_attempts a on a.job_id = j.id and a.attempt_no = j.attempt_count
where j.id = %(job_id)s and a.status = 'released';

-- name: forgo
-- The job that waited for a run has ended: if it comes back, the run continues.
update fairlead.workflow_runs set answered = true where id = %(id)s;

-- name: undone
-- A compensation step of a run that ran or started.
select s.name from fairlead.workflow_steps s
where s.run_id = %(run_id)s and s.is_compensation and s.state not in ('waiting', 'skipped') order by s.place limit 1;

-- name: forget
-- Runs that ended more than `days` ago, with their steps; in the order of their ids, which is that of their start.
with old as materialized (
    select r.id from fairlead.workflow_runs r
    where r.id < (lpad(to_hex((extract(epoch from clock_timestamp() - make_interval(days => %(days)s)) * 1000)::bigint),
            12, '0') || repeat('0', 20))::uuid
        and r.finished_at < clock_timestamp() - make_interval(days => %(days)s)
    order by r.id limit %(limit)s for update skip locked
), uncounted as (
    delete from fairlead.run_jobs where root_run_id = any(array(select id from old))
)
delete from fairlead.workflow_runs where id = any(array(select id from old));

-- name: inconsistencies
-- Every disagreement between runs, steps and jobs; no rows if they agree.
select r.id as run_id, 'goes on with ' || r.live || ' steps live, and ' || count(s.run_id) || ' run' as problem
from fairlead.workflow_runs r
left join fairlead.workflow_steps s on s.run_id = r.id and s.state = 'running'
group by r.id having r.live <> count(s.run_id) or (r.status = 'running') <> (count(s.run_id) > 0)
union all
select s.run_id, 'step ' || s.name || ' waits for ' || s.remaining || ' jobs, and ' || count(j.id) || ' are active'
from fairlead.workflow_steps s
left join fairlead.jobs j on j.workflow_run_id = s.run_id and j.workflow_step = s.place and (
    j.status <= 'running' or exists (select from fairlead.ended_steps e where e.job_id = j.id))
where s.left_at is null
group by s.run_id, s.place, s.name, s.remaining having s.remaining <> count(j.id)
union all
select s.run_id, 'step ' || s.name || ' waits in a run that is over'
from fairlead.workflow_steps s join fairlead.workflow_runs r on r.id = s.run_id
where r.status <> 'running' and s.state = 'waiting'
union all
select s.run_id, 'step ' || s.name || ' began before ' || b.name || ' was over'
from fairlead.workflow_steps s
join fairlead.workflow_steps b on b.run_id = s.run_id and b.place = any(s.before)
where s.started_at < b.finished_at or s.started_at is not null and b.finished_at is null and s.state <> 'waiting'
union all
select j.workflow_run_id, 'step ' || s.name || ' has ' || count(*) || ' jobs that succeeded for item '
    || coalesce(j.workflow_item::text, 'none')
from fairlead.jobs j
join fairlead.workflow_steps s on s.run_id = j.workflow_run_id and s.place = j.workflow_step
where j.status = 'succeeded' and not s.is_compensation
group by j.workflow_run_id, s.name, j.workflow_item having count(*) > 1
union all
select r.id, 'is over, and job ' || j.id || ', which waits for it, sleeps until ' || l.due_at
from fairlead.later l
cross join lateral (
    select r.id, r.status from fairlead.workflow_runs r where r.parent_job_id = l.job_id order by r.id desc limit 1) r
join fairlead.jobs j on j.id = l.job_id
join fairlead.job_attempts a on a.job_id = j.id and a.attempt_no = j.attempt_count
where r.status <> 'running' and a.status = 'released';
