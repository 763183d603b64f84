-- Read-only views of runs and their steps.

-- name: recent
-- The last few runs of each of these workflows.
select r.key, r.id, r.status, r.created_at
from unnest(%(keys)s::text[]) as w(key)
cross join lateral (
    select n.key, n.id, n.status, n.created_at from fairlead.workflow_runs n
    where n.tenant_id = %(tenant_id)s and n.key = w.key order by n.tenant_id, n.key, n.id desc limit %(each)s) r
order by r.id desc;

-- name: shape
-- Every step of a run, with only the fields of the drawing.
select s.place, s.name, s.before, s.compensation, s.state from fairlead.workflow_steps s
where s.run_id = %(run_id)s order by s.place;

-- name: items
-- The jobs of a for_each step, from an item on; of a retried item the last one.
select one.item, one.id, one.status, one.attempt_count, one.started_at, one.finished_at, one.last_error
from (
    select distinct on (j.workflow_item) j.workflow_item as item, j.id, j.status, j.attempt_count, j.started_at,
        j.finished_at, j.last_error
    from fairlead.jobs j
    where j.workflow_run_id = %(run_id)s and j.workflow_step = %(place)s and j.workflow_item >= %(first)s
    order by j.workflow_item, j.id desc) one
where %(status)s::text is null or one.status = %(status)s::fairlead.job_status
order by one.item limit %(limit)s;
