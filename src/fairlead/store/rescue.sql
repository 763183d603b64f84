-- Expired leases: rescued oldest first, without waits. The transaction that deletes a lease owns the transition.

-- name: pulse
-- Notes that the database is up and a watchdog looks. If the last pulse is old, the database was away or no watchdog ran:
-- owners then get one lease's time, from now on, to report. Returns the time before which expired leases may be rescued.
-- If pulses are rare, each one is such a resumption, so leases from before the previous pulse may be rescued, too.
with seen as (
    select p.resumed_at, p.resumed_before, clock_timestamp() as now,
        coalesce(p.pulse_at < clock_timestamp() - make_interval(secs => %(gap_seconds)s), false) as is_gap
    from fairlead.pulse p
), noted as (
    -- skip if another watchdog does this now
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
    -- usually there is nothing to do, and the sweep ends
    exists (select from fairlead.leases l where l.expires_at < s.now) or exists (select from fairlead.lost_workers)
from seen s;

-- name: runs_of_expired
-- Locks the runs that the jobs of expired leases belong to, or wait for, until the transaction ends. Skips locked runs:
-- they may stay locked for long, and the other leases must not wait for that.
select r.id from fairlead.workflow_runs r
where r.id = any(array(
    select of_job.id from fairlead.leases l cross join lateral (
        -- by its id, whatever the statistics say of the few jobs that belong to a run
        (select j.workflow_run_id as id from fairlead.job_records j where j.id = l.job_id limit 1)
        union all
        select p.id from fairlead.workflow_runs p where p.parent_job_id = l.job_id) of_job
    where l.expires_at < clock_timestamp() - make_interval(secs => %(grace_seconds)s)
        and l.expires_at <= %(until)s::timestamptz and l.job_id = coalesce(%(only)s, l.job_id)))
order by r.id for update of r skip locked;

-- name: expired
-- Expired leases, oldest first, locked against other watchdogs until the transaction ends; without those of runs that are
-- not locked here.
select l.job_id, l.attempt_no, l.token, l.worker_id, l.started_at, l.expires_at, l.probation_until,
    l.host_id is not null as on_host, j.lost_count, j.suspected, exists (
        select from fairlead.deliveries d
        where d.job_id = l.job_id and d.attempt_no = l.attempt_no and d.token = l.token) as unaccepted,
    exists (
        select from fairlead.handovers h
        where h.job_id = l.job_id and h.attempt_no = l.attempt_no and h.token = l.token) as handed_over
from fairlead.leases l join fairlead.jobs j on j.id = l.job_id
where l.expires_at < clock_timestamp() - make_interval(secs => %(grace_seconds)s)
    and l.expires_at <= %(until)s::timestamptz and l.job_id = coalesce(%(only)s, l.job_id)
    and not l.job_id = any(%(but)s::uuid[])
    and (j.workflow_run_id is null or j.workflow_run_id = any(%(runs)s::uuid[]))
    and not exists (
        select from fairlead.workflow_runs p where p.parent_job_id = l.job_id and not p.id = any(%(runs)s::uuid[]))
order by l.expires_at, l.job_id limit %(limit)s for update of l skip locked;

-- name: borne
-- All leases of these workers whose jobs had begun: without those that no agent has accepted.
select l.job_id, l.attempt_no, l.worker_id, l.started_at, l.expires_at, l.probation_until from fairlead.leases l
where l.worker_id = any(%(workers)s) and not exists (
    select from fairlead.deliveries d
    where d.job_id = l.job_id and d.attempt_no = l.attempt_no and d.token = l.token);

-- name: lost_before
select worker_id, expired_at, blamed from fairlead.lost_workers where worker_id = any(%(workers)s);

-- name: remember_lost
-- In the order of their ids, so that two watchdogs cannot deadlock.
insert into fairlead.lost_workers as w (worker_id, expired_at, blamed, charged_job, charged_attempt)
select n.worker_id, n.expired_at, n.blamed, n.charged_job, n.charged_attempt
from jsonb_to_recordset(%(lost)s) as n(
    worker_id text, expired_at timestamptz, blamed boolean, charged_job uuid, charged_attempt int)
order by n.worker_id
on conflict (worker_id) do update
set expired_at = greatest(w.expired_at, excluded.expired_at), blamed = excluded.blamed,
    charged_job = excluded.charged_job, charged_attempt = excluded.charged_attempt;

-- name: uncharge
-- Workers that were lost with a job, and were seen again: they were cut off, and the job did not kill them. A job that
-- has ended stays as it is. HTTP workers may give a new process the name of a dead one, so they are left out; a worker
-- process and an agent have a new name at each start.
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
update fairlead.job_records j set lost_count = greatest(0, j.lost_count - 1)
from alive join fairlead.job_attempts a on a.job_id = alive.charged_job and a.attempt_no = alive.charged_attempt
where j.id = alive.charged_job and j.status <= 'running' and a.status = 'lost'
returning j.id;

-- name: forget_lost
delete from fairlead.lost_workers where expired_at < clock_timestamp() - make_interval(secs => %(seconds)s);

-- name: overdue
select job_id from fairlead.leases
where expires_at < clock_timestamp() and expires_at <= %(until)s::timestamptz and not job_id = any(%(but)s::uuid[])
order by expires_at, job_id limit %(limit)s;
