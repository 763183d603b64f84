-- Triggers with literal secrets, also deleted ones, whose rows stay.

-- name: page
-- The next triggers that may have secrets: sealed ones, those of definitions that mark secrets,
-- and those that start workflows, whose inputs may have secrets.
select g.id, g.tenant_id, g.trigger_type, d.key as definition_key, g.payload_template, g.filter, d.secret_paths
from fairlead.job_triggers g join fairlead.job_definitions d on d.id = g.definition_id
where g.id > %(after)s and (%(tenant_id)s::uuid is null or g.tenant_id = %(tenant_id)s)
    and (d.secret_paths <> '{}' or d.key = 'ENGINE_RUN' or strpos(g.payload_template::text || g.filter::text, '"$sealed"') > 0)
order by g.id limit %(limit)s;

-- name: replace
-- Names the values that it replaces: a trigger that was changed meanwhile stays.
update fairlead.job_triggers g set payload_template = %(template)s::jsonb, filter = %(filter)s::jsonb
where g.id = %(id)s and g.payload_template = %(old_template)s::jsonb and g.filter = %(old_filter)s::jsonb;
