-- name: edit_lost
-- A job has not the payload of its last acknowledged edit, nor one of a later edit.
-- work: pg_temp.calls where kind = 'edit' and outcome = 'ok'
select j.id, 'has the payload of edit ' || coalesce(j.payload ->> 'edit', 'none') || ', although edit ' || (c.what ->> 'edit')
    || ' was acknowledged at ' || c.answered
from pg_temp.calls c join fairlead.job_records j on j.id = (c.what ->> 'job')::uuid
where c.kind = 'edit' and c.outcome = 'ok' and coalesce((j.payload ->> 'edit')::integer, -1) < (c.what ->> 'edit')::integer;

-- name: edit_of_refusal
-- A job has the payload of an edit that was refused.
-- work: pg_temp.calls where kind = 'edit' and outcome = 'fail'
select j.id, 'has the payload of edit ' || (c.what ->> 'edit') || ', which failed with ' || c.code
from pg_temp.calls c join fairlead.job_records j on j.id = (c.what ->> 'job')::uuid
where c.kind = 'edit' and c.outcome = 'fail' and j.payload ->> 'edit' = c.what ->> 'edit';

-- name: edited_too_late
-- A handler worked with another payload than the one that its job has.
-- work: fairlead.job_records where output ? 'edit'
select j.id, 'its handler got edit ' || (j.output ->> 'edit') || ', and it has edit ' || (j.payload ->> 'edit')
from fairlead.job_records j
where j.output ? 'edit' and j.output -> 'edit' is distinct from j.payload -> 'edit';
