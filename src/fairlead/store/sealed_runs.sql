-- Runs whose input has secrets. Each update names the value that it replaces.

-- name: page
select r.id, r.tenant_id, r.input, r.secret_paths from fairlead.workflow_runs r
where r.id > %(after)s and (%(tenant_id)s::uuid is null or r.tenant_id = %(tenant_id)s) and r.secret_paths <> '{}'
order by r.id limit %(limit)s;

-- name: replace
update fairlead.workflow_runs r set input = %(new)s::jsonb where r.id = %(id)s and r.input = %(old)s::jsonb;
