-- Each update names the value that it replaces: a value that an edit or another rotation has changed meanwhile stays.

-- name: keys
-- Every data key, with its tenant; not those of other cells, which have no tenant here.
select k.id, k.tenant_id, t.slug as tenant, k.wrapped, k.master_key, k.created_at, k.superseded_at, k.retired_at,
    extract(epoch from clock_timestamp() - k.superseded_at)::float8 as superseded_for
from fairlead.tenant_keys k left join fairlead.tenants t on t.id = k.tenant_id
where %(tenant_id)s::uuid is null or k.tenant_id = %(tenant_id)s
order by k.tenant_id nulls first, k.created_at;

-- name: rewrap
update fairlead.tenant_keys set wrapped = %(wrapped)s, master_key = %(master_key)s
where id = %(id)s and master_key = %(was)s;

-- name: supersede
-- No row if another rotation was faster.
update fairlead.tenant_keys set superseded_at = clock_timestamp() where id = %(id)s and superseded_at is null returning id;

-- name: retire
update fairlead.tenant_keys set retired_at = clock_timestamp()
where id = %(id)s and superseded_at is not null and retired_at is null;

-- name: payloads
-- The next payloads that may have secrets: sealed ones, and those of definitions that mark secrets.
select j.id, j.tenant_id, d.key as definition, j.payload, d.secret_paths || coalesce(j.secret_paths, '{}') as secret_paths
from fairlead.job_records j join fairlead.job_definitions d on d.id = j.definition_id
where j.id > %(after)s and (%(tenant_id)s::uuid is null or j.tenant_id = %(tenant_id)s)
    and (d.secret_paths <> '{}' or j.secret_paths is not null or strpos(j.payload::text, '"$sealed"') > 0)
order by j.id limit %(limit)s;

-- name: replace_payload
update fairlead.job_records set payload = %(new)s::jsonb where id = %(id)s and payload = %(old)s::jsonb;

-- name: hook_secrets
select s.hook_id, s.tenant_id, s.secret from fairlead.hook_secrets s
where %(tenant_id)s::uuid is null or s.tenant_id = %(tenant_id)s;

-- name: replace_hook_secret
update fairlead.hook_secrets set secret = %(new)s where hook_id = %(id)s and secret = %(old)s;

-- name: second_factors
select f.user_id, f.tenant_id, f.secret from fairlead.second_factors f
where %(tenant_id)s::uuid is null or f.tenant_id = %(tenant_id)s;

-- name: replace_second_factor
update fairlead.second_factors set secret = %(new)s where user_id = %(id)s and secret = %(old)s;

-- name: is_used
-- Whether a stored value was sealed with a key.
select exists (select from fairlead.job_records where strpos(payload::text, %(mark)s) > 0)
    or exists (select from fairlead.job_steps where secret and strpos(result::text, %(mark)s) > 0)
    or exists (
        select from fairlead.job_triggers where strpos(payload_template::text || filter::text, %(mark)s) > 0)
    or exists (select from fairlead.workflows where strpos(spec::text, %(mark)s) > 0)
    or exists (
        select from fairlead.workflow_runs where secret_paths <> '{}' and strpos(input::text, %(mark)s) > 0)
    or exists (select from fairlead.workflow_steps where strpos(spec::text, %(mark)s) > 0)
    or exists (select from fairlead.hook_secrets where strpos(secret, %(mark)s) > 0)
    or exists (select from fairlead.second_factors where strpos(secret, %(mark)s) > 0);
