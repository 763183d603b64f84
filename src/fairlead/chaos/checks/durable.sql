-- name: step_repeated
-- A step ran again after it had been recorded.
-- work of chaos.durable: fairlead.job_steps s join pg_temp.step_runs r on r.job_id = s.job_id and r.name = s.name
--     where s.kind = 'step' and s.status in ('succeeded', 'failed')
select s.job_id, 'step ' || s.name || ' is recorded by attempt ' || s.attempt_no || ' after ' || s.tries || ' tries; attempt '
    || r.attempt_no || ' ran it ' || count(*) || ' times'
from fairlead.job_steps s join pg_temp.step_runs r on r.job_id = s.job_id and r.name = s.name
where s.kind = 'step' and s.status in ('succeeded', 'failed')
group by s.job_id, s.branch, s.position, s.name, s.attempt_no, s.tries, r.attempt_no
having r.attempt_no > s.attempt_no or r.attempt_no = s.attempt_no and count(*) > s.tries;

-- name: step_forgotten
-- A step ran again although its function had gone on after it in an earlier attempt.
-- work of chaos.durable: pg_temp.step_runs where attempt_no > 1
select again.job_id, 'attempt ' || again.attempt_no || ' ran step ' || again.name || ', and attempt ' || min(r.attempt_no)
    || ' had come to step ' || min(r.name)
from pg_temp.step_runs again
join pg_temp.step_runs r on r.job_id = again.job_id and r.attempt_no < again.attempt_no and r.place > again.place
group by again.job_id, again.attempt_no, again.name;

-- name: step_of_other_attempt
-- A step or a wait was recorded by an attempt that did not own the job at that time.
-- work of chaos.durable: fairlead.job_steps where kind in ('step', 'sleep', 'event', 'signal', 'call')
select s.job_id, s.kind || ' ' || s.name || ' was recorded at ' || s.at || ' by attempt ' || s.attempt_no || ', which '
    || coalesce('owned the job from ' || t.started_at || ' to ' || coalesce(t.finished_at::text, 'now'), 'does not exist')
from (
    -- what others completed has the time of its beginning; a failed child has no attempt
    select s.job_id, s.kind, s.name, s.attempt_no,
        case when s.kind = 'step' or s.status = 'timeout' then s.ended_at else s.started_at end as at
    from fairlead.job_steps s
    where s.kind in ('step', 'sleep', 'event', 'signal') or s.kind = 'call' and s.status in ('waiting', 'succeeded')) s
left join pg_temp.tries t on t.job_id = s.job_id and t.attempt_no = s.attempt_no
left join pg_temp.tries next on next.job_id = s.job_id and next.attempt_no = s.attempt_no + 1
where t.job_id is null or s.at < t.started_at or s.at > next.started_at;

-- name: step_unfounded
-- The result of a step is not what its attempt's run of it returned.
-- work of chaos.durable: fairlead.job_steps where kind = 'step' and status = 'succeeded'
select s.job_id, 'step ' || s.name || ' of attempt ' || s.attempt_no || ' has the result ' || coalesce(s.result::text, 'none')
    || '; its runs returned ' || coalesce((
        select string_agg(r.value || ' (attempt ' || r.attempt_no || ')', ', ') from pg_temp.step_runs r
        where r.job_id = s.job_id and r.name = s.name), 'nothing')
from fairlead.job_steps s
join fairlead.job_records j on j.id = s.job_id
join fairlead.job_definitions d on d.id = j.definition_id and d.key = %(durable)s
join fairlead.tenants t on t.id = j.tenant_id join pg_temp.tenant_plans p on p.slug = t.slug
where s.kind = 'step' and s.status = 'succeeded' and not exists (
    select from pg_temp.step_runs r
    where r.job_id = s.job_id and r.name = s.name and r.attempt_no = s.attempt_no and to_jsonb(r.value) = s.result::jsonb);

-- name: function_steps
-- A function did not get the recorded results of all its steps.
-- work of chaos.durable: pg_temp.planned where key = %(durable)s and status = 'succeeded'
select j.id, 'expected ' || coalesce(j.payload ->> 'total', '1') || ' steps with the results ' || coalesce(r.results, '{}')::text
    || ', found ' || coalesce((j.output -> 'steps')::text, 'none')
from fairlead.job_records j
join fairlead.job_definitions d on d.id = j.definition_id and d.key = %(durable)s
cross join lateral (
    select count(*) as number, jsonb_object_agg(s.name, s.result) as results from fairlead.job_steps s
    where s.job_id = j.id and s.kind = 'step' and s.status = 'succeeded') r
where j.status = 'succeeded'
    and (j.output -> 'steps' is distinct from r.results or r.number <> coalesce((j.payload ->> 'total')::bigint, 1));

-- name: function_result
-- A function did not get the event, the signal or the child's output that it waited for, or did not compensate.
-- work of chaos.durable: pg_temp.planned where key = %(durable)s and status = 'succeeded'
--     and plan ?| array['event', 'signal', 'late', 'broken', 'child']
select j.id, 'expected ' || wanted.value::text || ' for ' || wanted.name || ', found '
    || coalesce((j.output -> wanted.name)::text, 'none')
from fairlead.job_records j
join fairlead.job_definitions d on d.id = j.definition_id and d.key = %(durable)s
cross join lateral (select to_jsonb(concat_ws('/', j.payload ->> 'call', j.payload ->> 'n')) as key) k
cross join lateral (
    select 'event' as name, k.key as value where j.payload ? 'event'
    union all select 'signal', k.key where j.payload ? 'signal'
    union all select 'late', 'null' where j.payload ? 'late'
    union all select 'undone', 'true' where j.payload ? 'broken'
    union all
    select 'child', case when c.status = 'succeeded' then c.output -> 'steps' else '"failed"' end
    from fairlead.job_steps s join fairlead.job_records c on c.id = s.child_id
    where s.job_id = j.id and s.kind = 'call') wanted
where j.status = 'succeeded' and j.output -> wanted.name is distinct from wanted.value;

-- name: child_repeated
-- A function that succeeded called more or fewer children than its code does.
-- work of chaos.durable: pg_temp.planned where key = %(durable)s and status = 'succeeded' and plan ? 'child'
select j.id, 'expected ' || coalesce(s.calls, 0) || ' children, found ' || count(c.id)
from fairlead.job_records j
join fairlead.job_definitions d on d.id = j.definition_id and d.key = %(durable)s
left join (
    select s.job_id, sum(s.tries) as calls from fairlead.job_steps s where s.kind = 'call' group by s.job_id) s on s.job_id = j.id
left join fairlead.job_records c on c.parent_id = j.id
where j.status = 'succeeded'
group by j.id, j.payload, s.calls
having count(c.id) <> coalesce(s.calls, 0) or (j.payload ? 'child') <> (s.calls is not null);

-- name: wait_in_vain
-- A function waits for an event or a signal that has come.
-- work of chaos.durable: fairlead.job_steps where kind in ('event', 'signal')
select s.job_id, 'waits for the ' || s.kind || ' ' || s.name || ' since ' || s.started_at || ', and ' || came.id
    || ' came at ' || came.at
from fairlead.job_steps s
join fairlead.job_records j on j.id = s.job_id and j.status <= 'running'
cross join lateral (
    select e.id, e.recorded_at as at from fairlead.events e
    where s.kind = 'event' and e.tenant_id = s.tenant_id and e.name = s.name and e.recorded_at >= j.queued_at
        and e.data @> (s.request -> 'where')
    union all
    select g.id, g.sent_at from fairlead.job_signals g
    where s.kind = 'signal' and g.job_id = s.job_id and g.name = s.name and g.taken_at is null) came
where s.status = 'waiting';

-- name: woke_early
-- A function went on before its sleep was over, or before what it waited for had come.
-- work of chaos.durable: fairlead.job_steps s join fairlead.job_steps later
--     on later.job_id = s.job_id and later.branch = s.branch and later.position = s.position + 1
--     where s.kind in ('sleep', 'event', 'signal', 'call')
select s.job_id, s.kind || ' ' || s.name || ' was over at ' || coalesce(w.over_at::text, 'no time') || ', and '
    || later.kind || ' ' || later.name || ' began at ' || later.started_at
from fairlead.job_steps s
cross join lateral (select case when s.kind = 'sleep' then s.due_at else s.ended_at end as over_at) w
join fairlead.job_steps later on later.job_id = s.job_id and later.branch = s.branch and later.position = s.position + 1
where s.kind in ('sleep', 'event', 'signal', 'call')
    and (w.over_at is null or later.started_at < w.over_at - make_interval(secs => %(tolerance)s));

-- name: received_twice
-- A function received an event or a signal twice.
-- work of chaos.durable: fairlead.job_steps where kind in ('event', 'signal') and status = 'succeeded'
select s.job_id, 'received the ' || s.kind || ' ' || (s.result ->> 'id') || ' ' || count(*) || ' times'
from fairlead.job_steps s where s.kind in ('event', 'signal') and s.status = 'succeeded'
group by s.job_id, s.kind, s.result ->> 'id' having count(*) > 1;

-- name: answer_lost
-- A function went on without the acknowledged answer to its approval, or with another one.
-- work of chaos.durable: pg_temp.calls where kind = 'answer' and outcome = 'ok'
select j.id, 'expected the answer of call ' || c.id || ', acknowledged at ' || c.answered || ', found '
    || coalesce(j.output ->> 'approval', 'none')
from pg_temp.calls c join fairlead.job_records j on j.id = (c.what ->> 'job')::uuid
where c.kind = 'answer' and c.outcome = 'ok' and j.status = 'succeeded'
    and j.output ->> 'approval' is distinct from (c.what ->> 'answer') || '/' || c.id;

-- name: answered_twice
-- Two answers to the same approval were accepted.
-- work of chaos.durable: (select from pg_temp.calls where kind = 'answer' group by what ->> 'approval' having count(*) > 1) c
select min(c.what ->> 'job'), 'expected one answer to the approval ' || (c.what ->> 'approval') || ', found '
    || string_agg((c.what ->> 'answer') || ' at ' || c.answered, ', ' order by c.answered)
from pg_temp.calls c where c.kind = 'answer' and c.outcome = 'ok'
group by c.what ->> 'approval' having count(*) > 1;

-- name: signal_lost
-- An acknowledged signal is not in the tables.
-- work of chaos.durable: pg_temp.calls where kind = 'signal' and outcome = 'ok'
select c.id, 'expected signal ' || coalesce(c.ids[1]::text, 'with an id') || ' of job ' || (c.what ->> 'job') || ', found none'
from pg_temp.calls c
where c.kind = 'signal' and c.outcome = 'ok' and not exists (
    select from fairlead.job_signals g where g.id = c.ids[1] and g.job_id = (c.what ->> 'job')::uuid);
