-- name: outcome_after_loss
-- An attempt that was lost or given back decided the outcome of its job.
-- work: pg_temp.tries where status in ('lost', 'released')
select e.job_id, 'attempt ' || e.attempt_no || ' is ' || t.status || ', but the audit log says that it ended the job as '
    || e.meaning
from pg_temp.entries e join pg_temp.tries t on t.job_id = e.job_id and t.attempt_no = e.attempt_no
where e.meaning in ('succeeded', 'failed') and t.status in ('lost', 'released');

-- name: log_after_end
-- Output was added to an attempt that was over. The end of an attempt may be given its time a moment before it waits for the
-- last output to be stored; the next attempt is claimed after that.
-- work: fairlead.log_chunks
select c.job_id, 'output of attempt ' || c.attempt_no || ' was stored at ' || max(c.at) || '; it was ' || t.status || ' at '
    || t.finished_at
from fairlead.log_chunks c
join pg_temp.tries t on t.job_id = c.job_id and t.attempt_no = c.attempt_no
left join pg_temp.tries next on next.job_id = c.job_id and next.attempt_no = c.attempt_no + 1
where c.at > least(next.started_at, t.finished_at + interval '2 s')
group by c.job_id, c.attempt_no, t.status, t.finished_at;

-- name: output_of_other_attempt
-- A job's output is that of an attempt which did not end it.
-- work: fairlead.job_records where status = 'succeeded' and jsonb_typeof(output -> 'attempt') = 'number'
select j.id, 'attempt ' || j.attempt_count || ' ended the job, but its output is of attempt ' || (j.output ->> 'attempt')
from fairlead.job_records j
where j.status = 'succeeded' and jsonb_typeof(j.output) = 'object' and jsonb_typeof(j.output -> 'attempt') = 'number'
    and (j.output ->> 'attempt')::numeric <> j.attempt_count;

-- name: progress_of_other_attempt
-- A job's progress is that of an attempt which was not the last.
-- work: fairlead.job_records where progress ->> 'message' ~ '^attempt [0-9]+$' and status > 'running'
select j.id, 'attempt ' || j.attempt_count || ' was the last, but its progress says ' || (j.progress ->> 'message')
from fairlead.job_records j
where j.progress ->> 'message' ~ '^attempt [0-9]+$'
    and substr(j.progress ->> 'message', 9)::numeric <> j.attempt_count and j.status > 'running';

-- name: attack_accepted
-- An attack of the hostile tenant was accepted.
-- work of hostile: pg_temp.calls where kind = 'attack'
select c.id, 'the attack ' || coalesce(c.what ->> 'attack', 'without a name') || ' was accepted, and must be refused'
from pg_temp.calls c where c.kind = 'attack' and c.outcome = 'ok';
