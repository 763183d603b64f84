-- The history as temporary tables of the checker's transaction, so that the checks are queries over history and tables.

-- name: create
create temporary table call_records (
    id uuid not null, at double precision not null, kind text not null, tenant text not null, what jsonb not null
) on commit drop;
create temporary table answer_records (
    id uuid not null, at double precision not null, outcome text not null, ids uuid[] not null, code text not null,
    what jsonb not null
) on commit drop;
create temporary table starts (
    at double precision not null, job_id uuid not null, attempt_no integer not null, definition text not null,
    pid integer not null
) on commit drop;
create temporary table ends (
    at double precision not null, job_id uuid not null, attempt_no integer not null, outcome text not null
) on commit drop;
create temporary table step_runs (
    at double precision not null, job_id uuid not null, attempt_no integer not null, name text not null,
    place integer not null, value text not null
) on commit drop;
-- whose secret an attempt got, and which of its values
create temporary table secrets (
    at double precision not null, job_id uuid not null, attempt_no integer not null, owner text not null,
    number bigint not null
) on commit drop;
create temporary table batches (at double precision not null, jobs uuid[] not null) on commit drop;
-- one row for each fault and process that it hit; without a process, pid is null
create temporary table faults (
    place integer not null, at double precision not null, over_at double precision not null, kind text not null,
    target text not null, pid integer, note text not null
) on commit drop;
create temporary table samples (
    at double precision not null, name text not null, number integer not null
) on commit drop;
create temporary table phases (at double precision not null, name text not null) on commit drop;
create temporary table process_starts (
    at double precision not null, name text not null, role text not null, pid integer not null,
    former_was_ready boolean not null, once jsonb not null
) on commit drop;
create temporary table definition_plans (
    key text not null, runner text not null, max_running integer, max_running_per_tenant integer,
    max_attempts integer not null, by_key jsonb, rate jsonb, rate_per_tenant jsonb, slots integer not null, requires jsonb
) on commit drop;
create temporary table tenant_plans (slug text not null, max_running integer) on commit drop;

-- places in files and tables that have what no place may have, by the kind of that
create temporary table traces (kind text not null, place text not null) on commit drop;

-- the rows of orders that clients committed together with their jobs
create temporary table orders (id uuid not null, call_id uuid not null) on commit drop;
-- the rows that handlers committed together with the ends of their jobs
create temporary table commits (job_id uuid not null, attempt_no integer not null) on commit drop;

-- name: own_tables
-- The tables of the clients and of the handlers that are there.
select n.name from (values ('orders'), ('commits')) as n(name) where to_regclass('public.chaos_' || n.name) is not null;

-- name: copy_orders
insert into pg_temp.orders (id, call_id) select o.id, o.call_id from public.chaos_orders o;

-- name: copy_commits
insert into pg_temp.commits (job_id, attempt_no) select c.job_id, c.attempt_no from public.chaos_commits c;

-- name: analyze_tables
-- Without statistics the planner takes tables for small ones, and a join of two large ones never ends.
analyze fairlead.job_records, fairlead.job_attempts, fairlead.audit_log, fairlead.events, fairlead.trigger_firings, fairlead.workflow_runs, fairlead.workflow_steps, fairlead.log_chunks, fairlead.leases, fairlead.job_steps, fairlead.job_signals, fairlead.later;

-- name: complete
-- After the history has been copied in.
create index on pg_temp.call_records (id);
create index on pg_temp.answer_records (id);
create index on pg_temp.starts (job_id, attempt_no);
create index on pg_temp.ends (job_id, attempt_no);
create index on pg_temp.step_runs (job_id, name);
create index on pg_temp.secrets (job_id, attempt_no);
analyze pg_temp.call_records, pg_temp.answer_records, pg_temp.starts, pg_temp.ends, pg_temp.step_runs, pg_temp.secrets, pg_temp.faults, pg_temp.samples;

-- name: join_calls
-- `first` is the call that is repeated: all calls with the same `first` have at most one effect. `began` and `answered` are
-- times of the database's clock.
create temporary table calls on commit drop as
select c.id, c.kind, c.tenant, t.id as tenant_id, c.what, coalesce(a.outcome, 'unknown') as outcome,
    coalesce(a.ids, '{}') as ids, coalesce(a.code, '') as code, coalesce(a.what, '{}') as answer,
    coalesce((c.what ->> 'repeat_of')::uuid, c.id) as first, c.at, a.at as answered_at,
    to_timestamp(c.at + %(offset)s) as began, to_timestamp(a.at + %(offset)s) as answered
from pg_temp.call_records c
left join pg_temp.answer_records a on a.id = c.id
left join fairlead.tenants t on t.slug = c.tenant;

-- name: effects
-- What came of a call and its repetitions together.
create temporary table effects on commit drop as
select c.first, min(c.kind) as kind, (array_agg(c.tenant_id))[1] as tenant_id, bool_or(c.outcome = 'ok') as is_ok,
    bool_and(c.outcome = 'fail') as is_fail, count(*) as calls
from pg_temp.calls c group by c.first;

-- name: asked
-- The jobs that calls asked for. `answered_job` is the job that the answer named for it, which may be another if it `may_merge`.
create temporary table asked on commit drop as
select c.id as call_id, c.first, c.kind, c.tenant_id, c.outcome, c.began, c.answered, (j.n - 1)::integer as place,
    (j.job ->> 'id')::uuid as id, j.job ->> 'definition' as definition, coalesce(j.job -> 'plan', '{}') as plan,
    j.job ->> 'dedupe_key' as dedupe_key, c.ids[j.n::integer] as answered_job,
    coalesce((c.answer -> 'deduplicated' ->> (j.n - 1)::integer)::boolean, false) as is_duplicate,
    make_interval(secs => coalesce((j.job ->> 'delay')::float8, 0)) as delay,
    make_interval(secs => (j.job ->> 'expires_in')::float8) as expires_in,
    make_interval(secs => (j.job ->> 'unique_for')::float8) as unique_for, j.job -> 'debounce' as debounce,
    j.job ? 'dedupe_key' or j.job ? 'debounce' or coalesce(p.by_key ->> 'strategy' = 'drop_new', false) as may_merge
from pg_temp.calls c
cross join lateral jsonb_array_elements(c.what -> 'jobs') with ordinality as j(job, n)
left join pg_temp.definition_plans p on p.key = j.job ->> 'definition'
where c.kind in ('enqueue', 'order') and jsonb_typeof(c.what -> 'jobs') = 'array';

-- name: tries
-- Every attempt, with the limits' scopes.
create temporary table tries on commit drop as
select a.job_id, a.attempt_no, a.status, a.worker_id, a.token, a.started_at, a.finished_at, a.duration_ms, a.cost_cents,
    j.tenant_id, j.definition_id, j.host_id
from fairlead.attempts a left join fairlead.job_records j on j.id = a.job_id;

-- name: entries
-- The audit log of jobs, in its order.
create temporary table entries on commit drop as
select e.resource_id::uuid as job_id, e.at, e.action, (e.details ->> 'attempt_no')::integer as attempt_no,
    row_number() over (partition by e.resource_id order by e.at, e.part, e.spot, e.n) as place,
    case
        when e.action = 'job_created' then 'created'
        when e.action = 'JOB_RETRIED' then 'retried'
        when e.action = 'JOB_CANCEL_REQUESTED' then 'asked'
        when e.action = 'JOB_EXHAUSTED_RETRIES' then 'dead_letter'
        when e.action = 'JOB_FAILED' then 'failed'
        when e.action = 'JOB_CANCELED' then 'canceled'
        when e.action = d.audit_action then 'succeeded'
    end as meaning
from fairlead.audit_entries e
left join fairlead.job_definitions d on d.key = e.details ->> 'definition_key'
where e.resource_type = 'job' and e.resource_id is not null;

-- name: retries
-- The retries by hand of each job.
create temporary table retries on commit drop as
select e.job_id, count(*) as times, max(e.at) as last_at from pg_temp.entries e where e.meaning = 'retried' group by e.job_id;

-- name: planned
-- The jobs that calls of the history asked for and that are in the tables, each with its plan.
create temporary table planned on commit drop as
select j.id, j.tenant_id, j.definition_id, d.key, j.status, j.attempt_count, j.failure_count, j.lost_count, j.max_attempts,
    j.cancel_requested_at, a.first, a.place, a.plan
from fairlead.job_records j
join fairlead.job_definitions d on d.id = j.definition_id
join (select distinct on (first, place) first, place, plan from pg_temp.asked order by first, place, call_id) a
    on j.correlation_id = a.first::text and (j.payload ->> 'n')::integer = a.place
where j.source = 'manual' and j.workflow_run_id is null and j.parent_id is null;

-- name: lives
-- When each of these jobs came to be, started and ended. `began` is when the call was made that asked for it, and `known`
-- when it surely existed: when the call was answered, or the job was first claimed. `ended` is its first end.
create temporary table lives on commit drop as
select p.id, p.tenant_id, p.key as definition, p.first, a.began, least(a.answered, t.started) as known, t.started,
    least(e.ended, j.finished_at) as ended, a.delay, a.expires_in, a.unique_for, a.debounce, j.dedupe_key, j.queued_at
from pg_temp.planned p
join fairlead.job_records j on j.id = p.id
join (
    select a.first, a.place, min(a.began) as began, min(a.answered) filter (where a.outcome = 'ok') as answered,
        min(a.delay) as delay, min(a.expires_in) as expires_in, min(a.unique_for) as unique_for,
        (array_agg(a.debounce))[1] as debounce
    from pg_temp.asked a group by a.first, a.place) a on a.first = p.first and a.place = p.place
left join (select t.job_id, min(t.started_at) as started from pg_temp.tries t group by t.job_id) t on t.job_id = p.id
left join (
    select e.job_id, min(e.at) as ended from pg_temp.entries e
    where e.meaning in ('succeeded', 'failed', 'dead_letter', 'canceled') group by e.job_id) e on e.job_id = p.id;

-- name: by_key
-- Those whose definition limits them by a key.
create temporary table by_key on commit drop as
select l.*, l.queued_at + l.delay as due, (p.by_key ->> 'max_running')::integer as max_running,
    (p.by_key ->> 'fifo')::boolean as fifo, p.by_key ->> 'strategy' as strategy, p.by_key -> 'rate' as rate,
    j.payload #>> string_to_array(ltrim(p.by_key ->> 'pointer', '/'), '/') as value
from pg_temp.lives l join pg_temp.definition_plans p on p.key = l.definition
join fairlead.job_records j on j.id = l.id
where p.by_key is not null;

-- name: explained_losses
-- Lost attempts whose process or worker a fault hit, or whose worker the job itself shares with a job that kills it. A
-- worker is `host:pid:boot`; an agent's jobs are found by the time of a fault that hit an agent.
create temporary table explained_losses on commit drop as
select distinct on (t.job_id, t.attempt_no) t.job_id, t.attempt_no, t.started_at, f.kind, f.at as hit_at
from pg_temp.tries t
left join pg_temp.starts s on s.job_id = t.job_id and s.attempt_no = t.attempt_no
join pg_temp.faults f on f.pid is not null and (
    f.pid = s.pid
    or f.pid::text = split_part(t.worker_id, ':', 2)
    or t.worker_id like 'agent:%%' and f.pid in (select p.pid from pg_temp.process_starts p where p.role = 'agent'))
    and to_timestamp(f.at + %(offset)s) between t.started_at - interval '1 s' and t.finished_at
where t.status = 'lost'
order by t.job_id, t.attempt_no, f.at desc;

-- name: index_derived
create index on pg_temp.calls (id);
create index on pg_temp.asked (first, place);
create index on pg_temp.tries (job_id, attempt_no);
create index on pg_temp.entries (job_id, place);
analyze pg_temp.calls, pg_temp.effects, pg_temp.asked, pg_temp.tries, pg_temp.entries;

-- name: index_planned
create index on pg_temp.retries (job_id);
create index on pg_temp.planned (id);
create index on pg_temp.planned (first, place);
create index on pg_temp.lives (id);
create index on pg_temp.by_key (id);
create index on pg_temp.by_key (definition, tenant_id, value);
analyze pg_temp.retries, pg_temp.planned, pg_temp.lives, pg_temp.by_key, pg_temp.explained_losses;

-- name: clock
select extract(epoch from clock_timestamp())::float8;
