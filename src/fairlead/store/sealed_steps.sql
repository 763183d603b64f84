-- Results of secret steps. Each is bound to its job and place.

-- name: results
select s.tenant_id, s.job_id, s.branch, s.position, s.result from fairlead.job_steps s
where s.job_id = %(job_id)s and s.secret and s.result is not null;

-- name: replace
-- Names the value that it replaces: a result that another transaction has changed meanwhile stays.
update fairlead.job_steps s set result = %(new)s
where s.job_id = %(job_id)s and s.branch = %(branch)s and s.position = %(position)s
    and s.result::jsonb = %(old)s;

-- name: page
-- The next results of secret steps that are in plain form, or sealed with an earlier key.
select s.tenant_id, s.job_id, s.branch, s.position, s.result
from fairlead.job_steps s left join fairlead.tenant_keys k on k.tenant_id = s.tenant_id and k.superseded_at is null
where (s.job_id, s.branch, s.position) > (%(job_id)s, %(branch)s, %(position)s)
    and (%(tenant_id)s::uuid is null or s.tenant_id = %(tenant_id)s) and s.secret and s.result is not null
    and split_part(coalesce(s.result ->> '$sealed', ''), ':', 3) is distinct from replace(k.id::text, '-', '')
order by s.job_id, s.branch, s.position limit %(limit)s;
