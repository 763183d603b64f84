-- name: run_not_ended
-- A workflow run has not ended.
-- work of chaos.step: fairlead.workflow_runs
select r.id, 'expected the run to have ended, found it running'
from fairlead.workflow_runs r
join fairlead.tenants t on t.id = r.tenant_id join pg_temp.tenant_plans p on p.slug = t.slug
where r.status = 'running';

-- name: run_unplanned_end
-- A workflow run did not succeed, although every step of it was planned to.
-- work of chaos.step: fairlead.workflow_runs where status <> 'running'
select r.id, 'expected the run to succeed, found it ' || r.status || ': ' || coalesce(r.error::text, 'no error')
from fairlead.workflow_runs r
join fairlead.tenants t on t.id = r.tenant_id join pg_temp.tenant_plans p on p.slug = t.slug
where r.status in ('failed', 'canceled')
    -- a step that was condemned by kills, or canceled by a client, takes its run with it
    and not exists (
        select from fairlead.job_records j where j.workflow_run_id = r.id and (
            j.status = 'dead_letter' or j.cancel_requested_at is not null and exists (
                select from pg_temp.calls c where c.kind = 'cancel' and c.what ->> 'job' = j.id::text)));

-- name: step_not_once
-- A step of a run has more or fewer jobs than it should, or more than one success.
-- work of chaos.step: fairlead.workflow_steps where state in ('succeeded', 'failed', 'canceled') and error is null
select s.run_id || ' ' || s.name, 'expected ' || coalesce(s.items, 1) || ' jobs, each with at most one success, found '
    || count(j.id) || ' jobs'
from fairlead.workflow_steps s
left join fairlead.job_records j on j.workflow_run_id = s.run_id and j.workflow_step = s.place
where s.state in ('succeeded', 'failed', 'canceled') and s.error is null
group by s.run_id, s.name, s.items, s.state
having (count(j.id) <> coalesce(s.items, 1)
    or count(distinct coalesce(j.workflow_item, 0)) <> coalesce(s.items, 1))
    -- its run was canceled before its jobs were made
    and not (s.state = 'canceled' and count(j.id) = 0);

-- name: step_early
-- A step's job was enqueued before a step that it waits for was over.
-- work of chaos.step: fairlead.workflow_steps where before <> '{}'
select j.id, 'step ' || s.name || ' was enqueued at ' || j.queued_at || ', before step ' || b.name
    || ' was over at ' || max(k.finished_at)
from fairlead.workflow_steps s
join fairlead.workflow_steps b on b.run_id = s.run_id and b.place = any(s.before)
join fairlead.job_records j on j.workflow_run_id = s.run_id and j.workflow_step = s.place
join fairlead.job_records k on k.workflow_run_id = b.run_id and k.workflow_step = b.place
group by j.id, s.name, j.queued_at, b.name having j.queued_at < max(k.finished_at) or bool_or(k.finished_at is null);

-- name: handler_early
-- A step's handler began before the handler of a step that it waits for had ended.
-- work of chaos.step: fairlead.workflow_steps where before <> '{}'
select j.id, 'the handler of step ' || s.name || ' began ' || round((min(e.at) - min(h.at))::numeric, 3)
    || ' s before the end of step ' || b.name
from fairlead.workflow_steps s
join fairlead.workflow_steps b on b.run_id = s.run_id and b.place = any(s.before)
join fairlead.job_records j on j.workflow_run_id = s.run_id and j.workflow_step = s.place
join fairlead.job_records k on k.workflow_run_id = b.run_id and k.workflow_step = b.place and k.status = 'succeeded'
join pg_temp.starts h on h.job_id = j.id
join pg_temp.ends e on e.job_id = k.id and e.attempt_no = k.attempt_count
group by j.id, k.id, s.name, b.name having min(h.at) < min(e.at);

-- name: join_output
-- The output of a join is not the sum of the outputs before it.
-- work of chaos.join: fairlead.job_records j join fairlead.job_definitions d on d.id = j.definition_id
--     where d.key = %(join)s and j.status = 'succeeded'
select j.id, 'expected ' || sum((k.output #>> '{}')::numeric) || ', found ' || coalesce(j.output::text, 'none')
from fairlead.workflow_steps s
join fairlead.job_records j on j.workflow_run_id = s.run_id and j.workflow_step = s.place and j.status = 'succeeded'
join fairlead.job_definitions d on d.id = j.definition_id and d.key = %(join)s
join fairlead.job_records k on k.workflow_run_id = s.run_id and k.workflow_step = any(s.before)
where jsonb_typeof(k.output) = 'number'
group by j.id, j.output having (j.output #>> '{}') is distinct from sum((k.output #>> '{}')::numeric)::text;
