-- The tables are BullMQ's, and the search path has only its schema. Jobs are added, removed and paused by BullMQ's functions;
-- these statements read, and lock rows so that no worker takes a job meanwhile.

-- name: version
select coalesce(max(version), 0) as version from migration;

-- name: read
select j.state::text as state, j.return_value::text as return_value, j.failed_reason, j.stacktrace::text as stacktrace,
    array(
        select l.row from (
            select * from job_log l where l.queue = j.queue and l.job_id = j.id order by l.idx desc limit $3) l
        order by l.idx) as log, o.at
from unnest($1::text[], $2::text[]) with ordinality as o(queue, id, at)
join job j on j.queue = o.queue and j.id = o.id;

-- name: take_back
-- Workers skip locked rows: none can take the job between the check and its removal.
with locked as materialized (
    select j.queue, j.id, j.attempts_started from job j
    where j.queue = $1 and j.id = $2 and j.state not in ('completed', 'failed') for update
)
select remove(l.queue, l.id, false) as removed, l.attempts_started > 0 as begun from locked l;

-- name: remove
-- The lock keeps workers from taking a job that remove() is about to delete.
with locked as materialized (
    select j.queue, j.id, o.at from unnest($1::text[], $2::text[]) with ordinality as o(queue, id, at)
    join job j on j.queue = o.queue and j.id = o.id for update of j
)
select l.at, remove(l.queue, l.id, false) as removed from locked l;

-- name: last_event
-- All queues share the sequence.
select case when is_called then last_value else 0 end as id from event_seq;

-- name: events
-- `settled`: no transaction is left that could still commit an event with a lower id.
select e.id, e.queue, e.event, e.data->>'jobId' as job_id, e.data->>'data' as data, e.data->>'prev' as previous,
    age(e.xmin) > age(pg_snapshot_xmin(pg_current_snapshot())::xid) as settled
from event e where e.queue = any($1::text[]) and e.id > $2
order by e.id limit $3;

-- name: left
select count(*) filter (where j.state = 'active') as active,
    count(*) filter (where j.state = 'waiting-children') as waiting_children,
    (select count(*) from scheduler s where s.queue = $1) as schedulers
from job j where j.queue = $1 and j.state in ('active', 'waiting-children');

-- name: waiting
select j.id from job j where j.queue = $1 and j.state in ('waiting', 'delayed')
order by j.state, j.process_at_ms nulls first, j.priority, j.seq;

-- name: read_waiting
select j.id, j.name, j.data::text as data, j.opts::text as opts, j.priority, j.added_at_ms, j.process_at_ms,
    j.state = 'delayed' as is_delayed, j.attempts_made, j.parent_id is not null or j.parent_key is not null as has_parent,
    j.scheduler_id is not null as is_repeated
from unnest($2::text[]) with ordinality as o(id, at) join job j on j.queue = $1 and j.id = o.id
order by o.at;
