-- Read-only views of runs and their steps.

-- name: recent
-- The last few runs of each of these workflows.
select r.key, r.id, r.status, r.created_at
from unnest(%(keys)s::text[]) as w(key)
cross join lateral (
    select n.key, n.id, n.status, n.created_at from fairlead.workflow_runs n
    where n.tenant_id = %(tenant_id)s and n.key = w.key order by n.tenant_id, n.key, n.id desc limit %(each)s) r
order by r.id desc;

-- name: summaries
-- Every step of a run, with only the fields of the drawing.
select s.place, s.name, s.definition_key, s.compensation, s.state from fairlead.workflow_steps s
where s.run_id = %(run_id)s order by s.place;

-- name: groups
-- The steps of a run that wait for the same steps: a layer that waits for a whole layer is one row.
select s.before, array_agg(s.place order by s.place) as places from fairlead.workflow_steps s
where s.run_id = %(run_id)s group by s.before;

-- name: states
select s.state from fairlead.workflow_steps s where s.run_id = %(run_id)s order by s.place;

-- name: items
-- The jobs of a for_each step, from an item on; of a retried item the last one. Its first hundred attempts give its times.
select one.item, one.id, one.status, one.attempt_count, began.at as started_at, one.finished_at, one.last_error,
    (greatest(0, date_part('epoch', coalesce(one.finished_at, clock_timestamp()) - one.queued_at) * 1000)
        - coalesce(began.ran, 0))::bigint as queue_ms,
    began.ran::bigint as duration_ms
from (
    select distinct on (j.workflow_item) j.workflow_item as item, j.id, j.status, j.attempt_count, j.queued_at,
        j.finished_at, j.last_error
    from fairlead.jobs j
    where j.workflow_run_id = %(run_id)s and j.workflow_step = %(place)s and j.workflow_item >= %(first)s
    order by j.workflow_item, j.id desc) one
left join lateral (
    select min(a.started_at) as at, sum(coalesce(a.duration_ms,
        greatest(0, date_part('epoch', clock_timestamp() - a.started_at) * 1000))) as ran
    from (
        select a.started_at, a.duration_ms from fairlead.attempts a
        where a.job_id = one.id order by a.attempt_no limit 100) a) began on true
where %(status)s::text is null or one.status = %(status)s::fairlead.job_status
order by one.item limit %(limit)s;
