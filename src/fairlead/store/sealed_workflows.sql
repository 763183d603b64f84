-- Workflows and steps of runs with literal secrets. Each update names the value that it replaces.

-- name: page
select w.id, w.tenant_id, w.key, w.spec from fairlead.workflows w
where w.id > %(after)s and (%(tenant_id)s::uuid is null or w.tenant_id = %(tenant_id)s)
order by w.id limit %(limit)s;

-- name: replace
update fairlead.workflows w set spec = %(new)s::jsonb where w.id = %(id)s and w.spec = %(old)s::jsonb;

-- name: steps_page
-- The next steps of runs that may have secrets: sealed ones, and those of definitions that mark secrets.
select s.run_id, s.place, s.tenant_id, r.key, s.spec, coalesce(d.secret_paths, '{}') as secret_paths
from fairlead.workflow_steps s join fairlead.workflow_runs r on r.id = s.run_id
left join fairlead.job_definitions d on d.key = s.definition_key
where (s.run_id, s.place) > (%(run_id)s, %(place)s) and (%(tenant_id)s::uuid is null or s.tenant_id = %(tenant_id)s)
    and (d.secret_paths <> '{}' or strpos(s.spec::text, '"$sealed"') > 0)
order by s.run_id, s.place limit %(limit)s;

-- name: replace_step
update fairlead.workflow_steps s set spec = %(new)s::jsonb
where s.run_id = %(run_id)s and s.place = %(place)s and s.spec = %(old)s::jsonb;
