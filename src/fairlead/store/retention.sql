-- Removes finished jobs after their retention, with their attempts and logs, and whole days of the audit log. It never
-- touches queued or running jobs, never waits, and a round costs the same however much is stored.

-- name: remove
-- Reads `look` jobs after the place, in the order of their ids, which is the order of their enqueueing, up to the newest
-- id that could be old enough. Returns the next place; null at the end of the lap.
with shortest as materialized (
    select clock_timestamp() - make_interval(days => least(
        min(coalesce(d.retention_days, nullif(%(days)s::int, 0))), %(most_days)s)) as since
    from fairlead.job_definitions d
), edge as materialized (
    -- the first UUIDv7 that is too young; and the first that cannot have been generated yet: callers may choose ids of
    -- any version, and ids above it were chosen
    select (lpad(to_hex(greatest(0, extract(epoch from since) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
            as too_young,
        (lpad(to_hex((extract(epoch from clock_timestamp() + interval '1 day') * 1000)::bigint), 12, '0')
            || repeat('0', 20))::uuid as unborn
    from shortest where since is not null
), looked as materialized (
    (select j.id, j.definition_id, j.status, j.finished_at from fairlead.jobs j
     where j.id > %(place)s and j.id < (select too_young from edge)
     order by j.id limit %(look)s)
    union all
    (select j.id, j.definition_id, j.status, j.finished_at from fairlead.jobs j
     where exists (select from edge) and j.id > greatest(%(place)s, (select unborn from edge))
     order by j.id limit %(look)s)
    limit %(look)s
), ended as materialized (
    select l.id, d.since
    from looked l cross join lateral (
        select clock_timestamp() - make_interval(days => least(
            coalesce(d.retention_days, nullif(%(days)s::int, 0)), %(most_days)s)) as since
        from fairlead.job_definitions d where d.id = l.definition_id limit 1) d
    where l.status > 'running' and l.finished_at < d.since
    order by l.id limit %(limit)s
), held as materialized (
    -- a job that is being retried by hand stays, and so does one that has just been retried
    select j.id from ended e cross join lateral (
        select j.id from fairlead.job_records j
        where j.id = e.id and j.status > 'running' and j.finished_at < e.since
            -- later steps may need a step's output while its run is running
            and (j.workflow_run_id is null or not exists (
                select from fairlead.workflow_runs r where r.id = j.workflow_run_id and r.status = 'running'))
        limit 1 for update skip locked) j
), gone as (
    delete from fairlead.job_records where id = any(array(select id from held))
    returning id, tenant_id, definition_id, status, finished_at, tags, expires_at
), untagged as (
    delete from fairlead.job_tags t using gone g, unnest(g.tags) as one(tag)
    where t.tenant_id = g.tenant_id and t.tag = one.tag and t.job_id = g.id
), not_expiring as (
    delete from fairlead.expiries e using gone g where e.expires_at = g.expires_at and e.job_id = g.id
), unrecorded as (
    delete from fairlead.job_attempts where job_id = any(array(select id from gone))
), unlogged as (
    delete from fairlead.log_chunks where job_id = any(array(select id from gone))
), forgotten_steps as (
    delete from fairlead.job_steps where job_id = any(array(select id from gone))
), forgotten_signals as (
    delete from fairlead.job_signals where job_id = any(array(select id from gone))
), unapproved as (
    delete from fairlead.approvals where job_id = any(array(select id from gone))
), left_groups as (
    delete from fairlead.error_group_jobs
    where job_id = any(array(select id from gone where status in ('failed', 'dead_letter')))
    returning group_id, tenant_id, status
), group_changes as (
    insert into fairlead.error_group_changes (group_id, tenant_id, failed, dead_letter)
    select group_id, tenant_id, -count(*) filter (where status = 'failed'), -count(*) filter (where status = 'dead_letter')
    from left_groups group by group_id, tenant_id
), counted as (
    -- in a minute that charts do not show any more, and that is old enough to be folded into history
    insert into fairlead.counts (tenant_id, definition_id, minute, succeeded, failed, dead_letter, canceled)
    select tenant_id, definition_id,
        date_trunc('minute', least(min(finished_at), clock_timestamp() - interval '26 hours')),
        -count(*) filter (where status = 'succeeded'), -count(*) filter (where status = 'failed'),
        -count(*) filter (where status = 'dead_letter'), -count(*) filter (where status = 'canceled')
    from gone group by tenant_id, definition_id
), added as (
    -- replaces the existing rows by one, except those that another round has locked
    delete from fairlead.removed_jobs where ctid = any(array(
        select r.spot from (select distinct tenant_id, definition_id from gone) g cross join lateral (
            select r.ctid as spot from fairlead.removed_jobs r
            where r.tenant_id = g.tenant_id and r.definition_id = g.definition_id
            for update skip locked) r))
    returning tenant_id, definition_id, jobs
), noted as (
    insert into fairlead.removed_jobs (tenant_id, definition_id, jobs)
    select tenant_id, definition_id, sum(jobs)
    from (select * from added union all select tenant_id, definition_id, 1 from gone) r
    group by tenant_id, definition_id
)
select (select count(*) from gone) as removed,
    case when (select count(*) from ended) = %(limit)s then (select id from ended order by id desc limit 1)
        when (select count(*) from looked) = %(look)s then (select id from looked order by id desc limit 1)
    end as place;

-- name: hurry
-- A wait for a lock on the audit log blocks every enqueue and finish behind it, so the wait is short.
select set_config('lock_timeout', '100ms', true);

-- name: patience
-- Attaching a day blocks no writer, so the wait may be longer than for a lock on the whole log.
select set_config('lock_timeout', '2s', true);

-- name: prepare_audit_days
select fairlead.prepare_audit_days(%(days)s);

-- name: drop_audit_day
select fairlead.drop_audit_day(%(keep_days)s);

-- name: drop_audit_rest
select fairlead.drop_audit_rest(%(keep_days)s, %(most)s);
