-- The steps and waits of durable functions. Only the attempt that owns the lease writes them.

-- name: steps
-- All steps of a job, in the order in which the code asked for them within each branch. A failed step runs again if the job
-- is retried, and not if its attempt was only lost, or ended since another branch waits.
select s.branch, s.position, s.kind, s.name, s.status, s.tries, s.attempt_no,
    extract(epoch from s.due_at - clock_timestamp())::float8 as seconds_left, s.result, s.error,
    -- with a limit, so that the planner never reads all attempts
    s.status = 'retry' and coalesce((
        select a.status in ('lost', 'released') from fairlead.job_attempts a
        where a.job_id = s.job_id and a.attempt_no = s.attempt_no limit 1), false) as is_open,
    case when s.secret then s.tenant_id end as secret_of
from fairlead.job_steps s where s.job_id = %(job_id)s
union all
-- a mark that the attempt owns the job: without its lease, the steps may have gone with the tenant to another cell
select '', -1, 'step', '', 'succeeded', 0, l.attempt_no, null, null, null, false, null from fairlead.leases l
where l.job_id = %(job_id)s and l.attempt_no = %(attempt_no)s and l.token = %(token)s;

-- name: list_steps
-- A page of the steps of a job, as users see them. A sleep stays 'waiting' when it is over, since nothing else needs to know.
select case when s.branch = '' then '' else s.branch || ':' end || (s.position + 1) as place, s.branch, s.position + 1 as number,
    s.kind, s.name, case when o.is_over then 'succeeded' else s.status end as status, s.tries, s.attempt_no, s.started_at,
    case when o.is_over then s.due_at else s.ended_at end as ended_at, s.due_at, s.child_id, s.secret, s.request,
    case when not s.secret then s.result when s.result is not null then '"[redacted]"'::json end as result, s.error
from fairlead.job_steps s
cross join lateral (select s.kind = 'sleep' and s.status = 'waiting' and s.due_at <= clock_timestamp() as is_over) o
where s.job_id = %(job_id)s and s.position >= 0 and (s.branch, s.position) > (%(branch)s, %(position)s)
order by s.branch, s.position limit %(limit)s

-- name: forget
-- Forgets steps of an ended job. Signals that they had received can be received again.
with forgotten as (
    delete from fairlead.job_steps s
    using unnest(%(branches)s::text[], %(positions)s::integer[]) as o(branch, position)
    where s.job_id = %(job_id)s and s.branch = o.branch and s.position = o.position
    returning s.branch, s.position, s.kind, s.result
), signals as (
    update fairlead.job_signals s set taken_at = null from forgotten f
    where f.kind = 'signal' and s.job_id = %(job_id)s and s.id::text = f.result ->> 'id'
), counted as (
    insert into fairlead.job_steps (
        job_id, branch, position, attempt_no, status, kind, name, tenant_id, started_at, ended_at, result)
    values (
        %(job_id)s, '', -2, 0, 'succeeded', 'restart', 'restart', %(tenant_id)s, clock_timestamp(), clock_timestamp(), '1')
    on conflict (job_id, branch, position) do update
    set result = to_jsonb((job_steps.result #>> '{}')::integer + 1), ended_at = excluded.ended_at
)
select count(*) from forgotten;

-- name: lock_ended
-- Keeps an ended job from being retried. Without a row it has not ended.
select from fairlead.job_records where id = %(job_id)s and status > 'running' for share;

-- name: copy
-- Gives a new job the records of an ended one at these places. Failures that the function had not gone on after and waits that
-- were not over are left out, so that they begin anew; a sleep ends when it would have ended.
insert into fairlead.job_steps (
    job_id, branch, position, attempt_no, status, kind, name, tenant_id, tries, started_at, ended_at, due_at, child_id, secret,
    request, result, error)
select %(new_id)s, s.branch, s.position, 0, s.status, s.kind, s.name, s.tenant_id, s.tries, s.started_at, s.ended_at, s.due_at,
    s.child_id, s.secret, s.request, s.result, s.error
from unnest(%(branches)s::text[], %(positions)s::integer[]) as o(branch, position)
join fairlead.job_steps s on s.job_id = %(job_id)s and s.branch = o.branch and s.position = o.position
where s.status in ('succeeded', 'failed', 'timeout') or s.kind = 'sleep'
union all
-- the job that it repeats, and since when its events count; the first one, if that is a replay, too
select %(new_id)s, '', -2, 0, 'succeeded', 'restart', coalesce(nullif(r.name, 'restart'), j.id::text), j.tenant_id, 1,
    least(j.queued_at, r.started_at), clock_timestamp(), null, null, false, null, '0', null
from fairlead.job_records j
left join fairlead.job_steps r on r.job_id = j.id and r.branch = '' and r.position = -2
where j.id = %(job_id)s;

-- name: seed
select s.name from fairlead.job_steps s where s.job_id = %(job_id)s and s.branch = '' and s.position = -2 and s.name <> 'restart';

-- name: signals_to_copy
-- The signals to an ended job that the copied waits of its replay have not received.
select s.id from fairlead.job_signals s
where s.job_id = %(job_id)s and not exists (
    select from fairlead.job_steps k
    where k.job_id = %(new_id)s and k.kind = 'signal' and k.result ->> 'id' = s.id::text)
order by s.id;

-- name: copy_signals
insert into fairlead.job_signals (id, job_id, tenant_id, name, data, sent_by, sent_at)
select o.new_id, %(new_id)s, s.tenant_id, s.name, s.data, s.sent_by, s.sent_at
from unnest(%(ids)s::uuid[], %(new_ids)s::uuid[]) as o(id, new_id) join fairlead.job_signals s on s.id = o.id;

-- name: record
-- Records steps that have ended, and failed tries. What is not returned had lost its lease. The same attempt may record a
-- step twice: the answer may have been lost.
insert into fairlead.job_steps (
    job_id, branch, position, attempt_no, status, kind, name, tenant_id, tries, started_at, ended_at, due_at, secret,
    result, error)
select o.job_id, coalesce(o.branch, ''), o.position, o.attempt_no, coalesce(o.status, 'succeeded'), coalesce(o.kind, 'step'),
    o.name, l.tenant_id, coalesce(o.tries, 1), m.now - make_interval(secs => coalesce(o.took, 0)), m.now,
    m.now + make_interval(secs => o.delay), coalesce(o.secret, false), o.result, o.error
from json_to_recordset(%(steps)s) as o(
        job_id uuid, attempt_no integer, token uuid, branch text, position integer, kind text, name text, status text,
        tries integer, took float8, delay float8, secret boolean, result json, error jsonb)
cross join lateral (
    select l.tenant_id from fairlead.leases l
    where l.job_id = o.job_id and l.attempt_no = o.attempt_no and l.token = o.token and l.expires_at > clock_timestamp()
    limit 1 for key share) l
cross join (select clock_timestamp() as now) m
on conflict (job_id, branch, position) do update
set attempt_no = excluded.attempt_no, status = excluded.status, tries = excluded.tries, started_at = excluded.started_at,
    ended_at = excluded.ended_at, due_at = excluded.due_at, result = excluded.result, error = excluded.error
where job_steps.status in ('waiting', 'retry') or job_steps.attempt_no = excluded.attempt_no
returning job_id, branch, position;

-- name: begin_wait
select s.branch, s.position, s.kind, s.name, s.status, s.tries, s.attempt_no,
    extract(epoch from s.due_at - clock_timestamp())::float8 as seconds_left, s.result, s.error,
    case when s.secret then s.tenant_id end as secret_of
from fairlead.begin_wait(
    %(job_id)s, %(attempt_no)s, %(token)s, %(branch)s, %(position)s, %(kind)s, %(name)s, %(seconds)s, %(due)s, %(request)s,
    %(child)s, %(tries)s, %(match_key)s) s
where s.job_id is not null;

-- name: give_up
-- Ends a wait whose time is over, unless it was completed at the last moment: then returns its result.
with held as materialized (
    select from fairlead.leases l
    where l.job_id = %(job_id)s and l.attempt_no = %(attempt_no)s and l.token = %(token)s
        and l.expires_at > clock_timestamp()
    for key share
), step as materialized (
    -- with the lock it reads what another transaction has written meanwhile
    select s.* from fairlead.job_steps s
    where s.job_id = %(job_id)s and s.branch = %(branch)s and s.position = %(position)s and exists (select from held)
    for no key update
), over as (
    update fairlead.job_steps s set status = 'timeout', ended_at = clock_timestamp(), attempt_no = %(attempt_no)s
    from step
    where s.job_id = step.job_id and s.branch = step.branch and s.position = step.position and step.status = 'waiting'
    returning s.*
), unanswered as (
    update fairlead.approvals a set status = 'expired' from over s
    where s.kind = 'approval' and a.id = (s.request ->> 'approval_id')::uuid and a.status = 'open'
)
select s.branch, s.position, s.kind, s.name, s.status, s.tries, s.attempt_no, null::float8 as seconds_left, s.result, s.error,
    case when s.secret then s.tenant_id end as secret_of
from over s
union all
select s.branch, s.position, s.kind, s.name, s.status, s.tries, s.attempt_no, null::float8, s.result, s.error,
    case when s.secret then s.tenant_id end
from step s where s.status <> 'waiting';

-- name: complete
select fairlead.complete_waits(%(waits)s);

-- name: lock_waits
-- In the order of complete_waits: two transactions that lock several steps cannot deadlock.
select from fairlead.job_steps s
join jsonb_to_recordset(%(waits)s) as w(job_id uuid, branch text, position integer)
    on s.job_id = w.job_id and s.branch = w.branch and s.position = w.position
order by s.job_id, s.branch, s.position for no key update of s;

-- name: wake_completed
-- Wakes functions that have just gone to sleep and whose waits were completed meanwhile.
select coalesce(fairlead.wake_functions(array_agg(distinct s.job_id)), 0)
from jsonb_to_recordset(%(waits)s) as w(job_id uuid, branch text, position integer)
join fairlead.job_steps s on s.job_id = w.job_id and s.branch = w.branch and s.position = w.position
where s.status <> 'waiting'
having count(*) > 0;

-- name: take_ended_children
-- A tenant that is being moved is left to its new cell.
delete from fairlead.ended_children where ctid = any(array(
    select e.ctid from fairlead.ended_children e
    where not e.tenant_id = any(array(select t.id from fairlead.tenants t where t.placement <> 'here'))
    order by e.job_id limit %(limit)s for update skip locked))
returning job_id;

-- name: waits_for_children
-- A child that was retried by hand has not ended: its parent waits on.
select s.job_id, s.branch, s.position, case when c.status = 'succeeded' then 'succeeded' else 'retry' end as status,
    c.output as result, fairlead.error_of_child(c.status, c.error, c.last_error) as error
from unnest(%(children)s::uuid[]) as o(id)
cross join lateral (
    select c.status, c.output, c.error, c.last_error from fairlead.job_records c
    where c.id = o.id and c.status > 'running' limit 1) c
join fairlead.job_steps s on s.child_id = o.id and s.status = 'waiting';

-- name: orphans
-- Active children of canceled functions, which wait for them. Not those that another function waits for, too. Locks the
-- functions against a retry.
with parent as materialized (
    select j.id from fairlead.job_records j where j.id = any(%(jobs)s::uuid[]) and j.status = 'canceled'
    order by j.id for no key update
)
select p.id as parent_id, c.id, c.tenant_id, d.key as definition_key
from parent p
join fairlead.job_steps s on s.job_id = p.id and s.child_id is not null and s.status = 'waiting'
cross join lateral (
    select c.id, c.tenant_id, c.definition_id from fairlead.job_records c
    where c.id = s.child_id and c.parent_id = p.id and c.status <= 'running' limit 1) c
join fairlead.job_definitions d on d.id = c.definition_id
where not exists (
    select from fairlead.job_steps o where o.child_id = c.id and o.status = 'waiting' and o.job_id <> p.id);

-- name: drop_calls
-- If the function is retried, it calls new children in the place of these.
update fairlead.job_steps s
set status = 'retry', ended_at = clock_timestamp(),
    error = jsonb_build_object('type', 'Canceled', 'message', 'the function was canceled')
where s.job_id = any(%(jobs)s::uuid[]) and s.child_id = any(%(children)s::uuid[]) and s.status = 'waiting';

-- name: note_again
insert into fairlead.ended_children (job_id, tenant_id)
select j.id, j.tenant_id from fairlead.job_records j where j.id = any(%(jobs)s::uuid[]) on conflict do nothing;

-- name: lock_event_names
-- A wait for an event looks for earlier events and is recorded under the exclusive lock of the name, and events are
-- dispatched under the shared one: none is missed.
select pg_advisory_xact_lock_shared(hashtextextended('fairlead.wait ' || n.tenant_id || ' ' || n.name, 0))
from (
    select distinct tenant_id, name from unnest(%(tenants)s::uuid[], %(names)s::text[]) as o(tenant_id, name)
    order by tenant_id, name) n;

-- name: awaited_names
-- The names that functions wait for. No function waits for most events.
select n.tenant_id, n.name from unnest(%(tenants)s::uuid[], %(names)s::text[]) as n(tenant_id, name)
cross join lateral (
    select from fairlead.job_steps s
    where s.tenant_id = n.tenant_id and s.name = n.name and s.kind = 'event' and s.status = 'waiting' limit 1) w;

-- name: lock_event_name
select pg_advisory_xact_lock(hashtextextended('fairlead.wait ' || %(tenant_id)s || ' ' || %(name)s, 0));

-- name: event_wait
with held as materialized (
    select from fairlead.leases l
    where l.job_id = %(job_id)s and l.attempt_no = %(attempt_no)s and l.token = %(token)s
        and l.expires_at > clock_timestamp()
    for key share
)
select s.job_id, s.branch, s.position, s.request -> 'where' as filter
from fairlead.job_steps s
where s.job_id = %(job_id)s and s.branch = %(branch)s and s.position = %(position)s and s.status = 'waiting'
    and exists (select from held);

-- name: received
-- Whether the function of a wait has received the event before: it is dispatched late, or in parts, and the function waits for the
-- next one. Also if another step of its run had received it when this one began to wait.
exists (
    select from fairlead.job_steps o
    where o.job_id = s.job_id and o.kind = 'event' and o.name = %(name)s and o.result ->> 'id' = %(event_id)s)
or s.started_at >= %(recorded_at)s and exists (
    select from fairlead.job_records j
    join fairlead.job_records r on r.workflow_run_id = j.workflow_run_id and r.workflow_step <> j.workflow_step
    join fairlead.job_steps o on o.job_id = r.id and o.kind = 'event' and o.name = %(name)s
    where j.id = s.job_id and j.workflow_run_id is not null
        and o.result ->> 'id' = %(event_id)s and o.ended_at <= s.started_at)

-- name: waits_for_event
-- A page of the waits for an event of this name whose filters may match. Without `keys` the filters of all are compared.
select s.job_id, s.branch, s.position, s.request -> 'where' as filter
from fairlead.job_steps s
where s.tenant_id = %(tenant_id)s and s.name = %(name)s and s.kind = 'event' and s.status = 'waiting'
    and (%(keys)s::uuid[] is null or s.match_key = any(%(keys)s::uuid[]))
    and (s.job_id, s.branch, s.position) > (%(after_job)s, %(after_branch)s, %(after_position)s)
    and not (<received>)
order by s.job_id, s.branch, s.position limit %(limit)s;

-- name: waits_for_any_event
-- The same for filters that compare no field with a value.
select s.job_id, s.branch, s.position, s.request -> 'where' as filter
from fairlead.job_steps s
where s.tenant_id = %(tenant_id)s and s.name = %(name)s and s.kind = 'event' and s.status = 'waiting' and s.match_key is null
    and (s.job_id, s.branch, s.position) > (%(after_job)s, %(after_branch)s, %(after_position)s)
    and not (<received>)
order by s.job_id, s.branch, s.position limit %(limit)s;

-- name: receivers
-- The job, and if it is a step, the jobs of the run's other steps that have received an event of this name.
select %(job_id)s::uuid
union
select o.id from fairlead.job_records j
join fairlead.job_records o on o.workflow_run_id = j.workflow_run_id and o.workflow_step <> j.workflow_step
where j.id = %(job_id)s and j.workflow_run_id is not null and exists (
    select from fairlead.job_steps s
    where s.job_id = o.id and s.kind = 'event' and s.name = %(name)s and s.status = 'succeeded');

-- name: counts
-- Whether the event `e` counts for a wait: it has this name, was stored since the job was enqueued (a step: since its run
-- started; a replay: since the job that it repeats was enqueued), or within `lookback` seconds before the wait began, and none
-- of `jobs` has received it: see `receivers`.
e.tenant_id = %(tenant_id)s and e.name = %(name)s
    and e.recorded_at >= coalesce(
        (select s.started_at - make_interval(secs => %(lookback)s) from fairlead.job_steps s
            where s.job_id = %(job_id)s and s.branch = %(branch)s and s.position = %(position)s),
        (select least(coalesce((
                select r.created_at from fairlead.workflow_runs r
                where r.id = j.workflow_run_id and j.workflow_run_id is not null), j.queued_at), (
                select s.started_at from fairlead.job_steps s where s.job_id = %(job_id)s and s.branch = '' and s.position = -2
                    and s.name <> 'restart'))
            from fairlead.job_records j where j.id = %(job_id)s limit 1))
    and e.only_trigger_id is null
    and not exists (
        select from fairlead.job_steps s
        where s.job_id = any(%(jobs)s::uuid[]) and s.kind = 'event' and s.name = %(name)s
            and s.result ->> 'id' = e.id::text)

-- name: earlier_events
-- A page of the events that count, the newest first.
select e.id, e.name, e.data, e.occurred_at from fairlead.events e
where <counts> and e.id < coalesce(%(place)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
order by e.id desc limit %(limit)s;

-- name: undispatched_events
-- A page of the events that count and were stored before the wait's time was over, but have not been dispatched, the oldest
-- first. Those that were dispatched have been compared with the wait. Of the newest events of the name alone: neither the
-- dispatched ones nor those of other names may make it slow. Only the index by name has the order in which it reads them.
select e.id, e.name, e.data, e.occurred_at
from (
    select n.id
    from (
        select e.id from fairlead.events e
        where (e.tenant_id, e.name, e.id) > (
                %(tenant_id)s, %(name)s, coalesce(%(place)s::uuid, '00000000-0000-0000-0000-000000000000'))
            and (e.tenant_id, e.name, e.id) < (%(tenant_id)s, %(name)s, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
            and exists (select from fairlead.events_waiting o where o.tenant_id = %(tenant_id)s)
        order by e.tenant_id desc, e.name desc, e.id desc limit %(newest)s) n
    cross join lateral (select from fairlead.events_waiting o where o.event_id = n.id limit 1) o
    order by n.id) w
cross join lateral (select * from fairlead.events e where e.id = w.id limit 1) e
where <counts> and e.recorded_at <= (
        select s.due_at from fairlead.job_steps s
        where s.job_id = %(job_id)s and s.branch = %(branch)s and s.position = %(position)s)
order by w.id limit %(limit)s;

-- name: lock_signals
-- A wait for a signal begins under the same lock: it sees this signal, or is seen by it. See begin_wait.sql.
select pg_advisory_xact_lock(hashtextextended('fairlead.signal ' || %(job_id)s, 0));

-- name: find_job
select j.id, j.tenant_id, j.status::text as status, d.key as definition_key
from fairlead.job_records j join fairlead.job_definitions d on d.id = j.definition_id
where j.id = %(job_id)s;

-- name: add_signal
insert into fairlead.job_signals (id, job_id, tenant_id, name, data, sent_by)
select %(id)s, %(job_id)s, %(tenant_id)s, %(name)s, %(data)s, %(actor)s
where (
    select count(*) from (
        select from fairlead.job_signals s where s.job_id = %(job_id)s and s.taken_at is null limit %(most)s) s) < %(most)s
returning id;

-- name: deliver_signal
-- Gives the signal to the first wait for its name. One row if a function waited for it.
with wait as (
    select s.job_id, s.branch, s.position from fairlead.job_steps s
    where s.job_id = %(job_id)s and s.kind = 'signal' and s.name = %(name)s and s.status = 'waiting'
    order by s.started_at, s.branch, s.position limit 1
    -- with the lock a wait that times out at this moment does not take the signal
    for no key update
), signal as (
    update fairlead.job_signals set taken_at = clock_timestamp()
    where id = %(id)s and exists (select from wait)
    returning *
)
select fairlead.complete_waits(jsonb_build_array(jsonb_build_object(
    'job_id', w.job_id, 'branch', w.branch, 'position', w.position, 'status', 'succeeded',
    'result', jsonb_build_object(
        'id', s.id, 'name', s.name, 'data', s.data, 'sent_at', s.sent_at, 'sent_by', s.sent_by))))
from wait w, signal s;
