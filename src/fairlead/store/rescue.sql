-- Leases whose owners are gone: put back, oldest first, waiting for nobody. Whoever deletes a lease owns the transition.

-- name: pulse
-- The database lives, and a watchdog looks. Where the last pulse is old, it was away, or nobody looked: owners get one
-- lease's time, from now on, to hand in what they have. The answer: leases that ended up to this time may be rescued.
-- Where looks are rare, each is such a resumption, and so one that followed the one before may be rescued, too.
with seen as (
    select p.resumed_at, p.resumed_before, clock_timestamp() as now,
        coalesce(p.pulse_at < clock_timestamp() - make_interval(secs => %(gap_seconds)s), false) as is_gap
    from fairlead.pulse p
), noted as (
    -- another watchdog does the same at this moment: no need to wait for it
    update fairlead.pulse p
    set pulse_at = s.now, resumed_at = case when s.is_gap then s.now else p.resumed_at end,
        resumed_before = case when s.is_gap then p.resumed_at else p.resumed_before end
    from seen s
    where p.ctid = any(array(select mine.ctid from fairlead.pulse mine for update skip locked))
)
select case
    when not s.is_gap and s.now >= s.resumed_at + make_interval(secs => %(lease_seconds)s) then s.now
    when s.is_gap and s.now >= s.resumed_at + make_interval(secs => %(lease_seconds)s)
        then nullif(s.resumed_at, '-infinity')
    when not s.is_gap and s.now >= s.resumed_before + make_interval(secs => %(lease_seconds)s)
        then nullif(s.resumed_before, '-infinity')
    end,
    -- nearly always there is nothing to do, and then the sweep is over
    exists (select from fairlead.leases l where l.expires_at < s.now) or exists (select from fairlead.lost_workers)
from seen s;

-- name: runs_of_expired
-- The runs that expired leases belong to, or are waited for by; those that can be held are held until the transaction
-- ends. It waits for none: whoever holds one may hold it for long, and the other leases are not to wait for that.
select r.id from fairlead.workflow_runs r
where r.id = any(array(
    select of_job.id from fairlead.leases l cross join lateral (
        select j.workflow_run_id as id from fairlead.jobs j where j.id = l.job_id and j.workflow_run_id is not null
        union all
        select p.id from fairlead.workflow_runs p where p.parent_job_id = l.job_id) of_job
    where l.expires_at < clock_timestamp() - make_interval(secs => %(grace_seconds)s)
        and l.expires_at <= %(until)s::timestamptz and l.job_id = coalesce(%(only)s, l.job_id)))
order by r.id for update of r skip locked;

-- name: expired
-- Leases whose owners did not renew them, oldest first, held against every other watchdog until the transaction ends. Left
-- out are those of runs that are not held.
select l.job_id, l.attempt_no, l.token, l.worker_id, l.started_at, l.expires_at, l.probation_until,
    l.host_id is not null as on_host, j.lost_count, j.suspected, exists (
        select from fairlead.deliveries d
        where d.job_id = l.job_id and d.attempt_no = l.attempt_no and d.token = l.token) as unaccepted
from fairlead.leases l join fairlead.jobs j on j.id = l.job_id
where l.expires_at < clock_timestamp() - make_interval(secs => %(grace_seconds)s)
    and l.expires_at <= %(until)s::timestamptz and l.job_id = coalesce(%(only)s, l.job_id)
    and not l.job_id = any(%(but)s::uuid[])
    and (j.workflow_run_id is null or j.workflow_run_id = any(%(runs)s::uuid[]))
    and not exists (
        select from fairlead.workflow_runs p where p.parent_job_id = l.job_id and not p.id = any(%(runs)s::uuid[]))
order by l.expires_at, l.job_id limit %(limit)s for update of l skip locked;

-- name: borne
-- All leases of these workers under which something had begun: what no agent has accepted is not among them.
select l.job_id, l.attempt_no, l.worker_id, l.started_at, l.expires_at, l.probation_until from fairlead.leases l
where l.worker_id = any(%(workers)s) and not exists (
    select from fairlead.deliveries d
    where d.job_id = l.job_id and d.attempt_no = l.attempt_no and d.token = l.token);

-- name: lost_before
select worker_id, expired_at, blamed from fairlead.lost_workers where worker_id = any(%(workers)s);

-- name: remember_lost
-- In the order of their ids, so that two watchdogs cannot wait for each other.
insert into fairlead.lost_workers as w (worker_id, expired_at, blamed, charged_job, charged_attempt)
select n.worker_id, n.expired_at, n.blamed, n.charged_job, n.charged_attempt
from jsonb_to_recordset(%(lost)s) as n(
    worker_id text, expired_at timestamptz, blamed boolean, charged_job uuid, charged_attempt int)
order by n.worker_id
on conflict (worker_id) do update
set expired_at = greatest(w.expired_at, excluded.expired_at), blamed = excluded.blamed,
    charged_job = excluded.charged_job, charged_attempt = excluded.charged_attempt;

-- name: uncharge
-- Workers that were lost with a job, and were seen again: they were cut off, and it was not the job that killed them. A
-- job that is over stays as it is. Workers over HTTP may give a new process the name of a dead one, so they are left out;
-- a worker process and an agent have a new name at each start.
with alive as (
    delete from fairlead.lost_workers w
    where w.charged_job is not null and (
        exists (
            select from fairlead.job_workers s
            where s.worker_id = w.worker_id and s.metadata ->> 'transport' is distinct from 'http' and s.last_seen_at > w.expired_at)
        or exists (
            select from fairlead.hosts h
            where 'agent:' || h.id || ':' || h.session_id = w.worker_id and h.last_seen_at > w.expired_at))
    returning w.charged_job, w.charged_attempt
)
update fairlead.jobs j set lost_count = greatest(0, j.lost_count - 1)
from alive join fairlead.job_attempts a on a.job_id = alive.charged_job and a.attempt_no = alive.charged_attempt
where j.id = alive.charged_job and j.status <= 'running' and a.status = 'lost'
returning j.id;

-- name: forget_lost
delete from fairlead.lost_workers where expired_at < clock_timestamp() - make_interval(secs => %(seconds)s);

-- name: overdue
select job_id from fairlead.leases
where expires_at < clock_timestamp() and expires_at <= %(until)s::timestamptz and not job_id = any(%(but)s::uuid[])
order by expires_at, job_id limit %(limit)s;
