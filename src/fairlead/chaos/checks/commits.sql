-- name: commit_torn
-- A job succeeded without what its handler wrote in the same transaction.
-- work of chaos.committed: fairlead.job_records j join fairlead.job_definitions d on d.id = j.definition_id
--     where d.key = 'chaos.committed' and j.status = 'succeeded'
select j.id, 'succeeded at ' || j.finished_at || ' by attempt ' || j.attempt_count || ', whose row is not there'
from fairlead.job_records j join fairlead.job_definitions d on d.id = j.definition_id
where d.key = 'chaos.committed' and j.status = 'succeeded' and not exists (
    select from pg_temp.commits c where c.job_id = j.id and c.attempt_no = j.attempt_count);

-- name: commit_unfounded
-- What a handler wrote was committed, and its attempt is no success.
-- work of chaos.committed: pg_temp.commits
select c.job_id, 'attempt ' || c.attempt_no || ' has committed its row ' || count(*) || ' times; it is '
    || coalesce(min(t.status), 'not recorded')
from pg_temp.commits c left join pg_temp.tries t on t.job_id = c.job_id and t.attempt_no = c.attempt_no
group by c.job_id, c.attempt_no having count(*) > 1 or coalesce(min(t.status), '') <> 'succeeded';
