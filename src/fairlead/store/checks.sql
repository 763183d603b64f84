-- Health checks of the hot tables and of PostgreSQL. Each query reads a bounded number of rows, so that all of them
-- together can run twice a minute under any load.

-- name: idle_transactions
-- Transactions that have been idle for longer than a lease: they hold locks that others wait for.
select a.pid, a.application_name as application,
    extract(epoch from clock_timestamp() - a.state_change)::float8 as seconds
from pg_catalog.pg_stat_activity a
where a.datname = current_database() and a.pid <> pg_backend_pid() and a.state like 'idle in transaction%%'
    and a.state_change < clock_timestamp() - make_interval(secs => %(lease_seconds)s)
order by a.state_change limit 20;

-- name: oldest_xmin
-- Sessions, prepared transactions and slots that keep vacuum from removing dead rows, the oldest first.
-- A role without pg_read_all_stats sees only its own sessions.
select holder, seconds, transactions from (
    select 'process ' || a.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') as holder,
        extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds,
        age(a.backend_xmin)::bigint as transactions
    from pg_catalog.pg_stat_activity a
    where a.backend_xmin is not null and a.pid <> pg_backend_pid()
        and (a.datname = current_database() or a.datname is null)
        and a.backend_type is distinct from 'autovacuum worker'
    union all
    select 'prepared transaction ' || p.gid, extract(epoch from clock_timestamp() - p.prepared)::float8,
        age(p.transaction)::bigint
    from pg_catalog.pg_prepared_xacts p where p.database = current_database()
    union all
    select 'replication slot ' || s.slot_name, null, greatest(age(s.xmin), age(s.catalog_xmin))::bigint
    from pg_catalog.pg_replication_slots s
    where (s.xmin is not null or s.catalog_xmin is not null)
        and (s.database = current_database() or s.database is null)
) held
order by transactions desc nulls last limit 1;

-- name: expired_leases
-- Leases that expired more than a lease and a sweep ago, and that no watchdog rescued.
select count(*) as leases,
    coalesce(extract(epoch from clock_timestamp() - min(l.expires_at)), 0)::float8 as seconds
from fairlead.leases l
where l.expires_at < clock_timestamp() - make_interval(secs => %(lease_seconds)s + %(sweep_seconds)s);

-- name: overdue_later
-- How late the stager is: seconds since the first job that is still in later fell due; 0 if none is due.
select coalesce((
    select greatest(0, extract(epoch from clock_timestamp() - l.due_at)) from fairlead.later l
    where not l.alone and not l.held order by l.due_at, l.job_id limit 1), 0)::float8;

-- name: left_steps
-- How long the first step has waited for its jobs to be made, which were too much work to make at once; 0 if none waits.
select coalesce(extract(epoch from clock_timestamp() - min(s.left_at)), 0)::float8
from fairlead.workflow_steps s where s.left_at is not null;

-- name: sleepers
-- Jobs that wait for a run that has ended: they would sleep until their timeout. The transaction that ends a run wakes
-- them; after half a minute the wake-up counts as lost.
select r.parent_job_id as job_id, r.id as run_id
from (
    select r.id, r.tenant_id, r.parent_job_id from fairlead.workflow_runs r
    where r.parent_job_id is not null and r.status <> 'running'
        and r.finished_at > clock_timestamp() - interval '2 days'
        and r.finished_at < clock_timestamp() - make_interval(secs => %(seconds)s)
    order by r.finished_at desc limit %(look)s) r
cross join lateral (
    select l.job_id from fairlead.later l
    where l.tenant_id = r.tenant_id and l.job_id = r.parent_job_id and l.due_at > clock_timestamp()
    limit 1) l
-- a job that failed and will be retried comes back by itself
where exists (
    select from fairlead.jobs j join fairlead.job_attempts a on a.job_id = j.id and a.attempt_no = j.attempt_count
    where j.id = r.parent_job_id and a.status = 'released');

-- name: duties
-- Duties that no process has taken for too long, or that keep failing.
select d.name, extract(epoch from clock_timestamp() - d.due_at)::float8 as late_seconds, d.failures, d.last_error
from fairlead.duties d
where d.due_at < clock_timestamp() - make_interval(secs => %(late_seconds)s) or d.failures >= %(failures)s
order by d.due_at;

-- name: audit_rest
-- Entries of days that had no partition.
select count(*) from (select from fairlead.audit_log_rest limit %(look)s) r;

-- name: unfolded
-- Rows of counts that should have been folded by now, in some minutes that the fold has passed.
select coalesce(sum(n - 1), 0)::bigint from (
    select count(*) as n from (
        select c.tenant_id, c.definition_id, c.minute
        from fairlead.tenants t cross join lateral (
            select c.tenant_id, c.definition_id, c.minute from fairlead.counts c
            where c.leveled in (false, true) and c.tenant_id = t.id
                and c.minute >= clock_timestamp() - interval '30 minutes'
                and c.minute < clock_timestamp() - interval '15 minutes' offset 0) c
        limit %(look)s) c
    group by c.tenant_id, c.definition_id, c.minute) of_minute;

-- name: server
-- The settings and state of PostgreSQL. `reset_val` is a session's default: our own sessions override some of these.
select
    (select s.reset_val from pg_catalog.pg_settings s where s.name = 'default_transaction_isolation') as isolation,
    (select s.setting::bigint from pg_catalog.pg_settings s
     where s.name = 'idle_in_transaction_session_timeout') as idle_milliseconds,
    (select s.reset_val::bigint from pg_catalog.pg_settings s
     where s.name = 'idle_in_transaction_session_timeout') as default_idle_milliseconds,
    inet_server_addr() is not null as is_remote,
    current_setting('tcp_keepalives_idle')::int as keepalives_idle,
    current_setting('synchronous_commit') as synchronous_commit,
    current_setting('synchronous_standby_names') as standby_names,
    (select count(*) from pg_catalog.pg_stat_replication) as standbys,
    -- roles without pg_read_all_stats see null here, which counts as a possible one
    (select count(*) from pg_catalog.pg_stat_replication r
     where coalesce(r.sync_state, 'sync') in ('sync', 'quorum')) as synchronous_standbys,
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as connections,
    (select count(*) from pg_catalog.pg_stat_activity a
     where coalesce(a.backend_type, 'client backend') = 'client backend') as connected,
    (select count(*) from fairlead.job_workers w
     where w.metadata ->> 'transport' is distinct from 'http' and w.last_seen_at > clock_timestamp() - interval '1 minute') as workers,
    (select greatest(age(d.datfrozenxid), mxid_age(d.datminmxid))::bigint
     from pg_catalog.pg_database d where d.datname = current_database()) as frozen_age,
    current_setting('autovacuum_freeze_max_age')::bigint as freeze_max_age,
    current_setting('autovacuum') as autovacuum,
    current_setting('track_counts') as track_counts;

-- name: put
-- Replaces the findings. Returns the checks whose verdict changed.
with found as (
    select * from jsonb_to_recordset(%(found)s) as f(
        name text, verdict text, value double precision, detail text, advice text)
), before as materialized (
    select c.name, c.verdict from fairlead.checks c
), written as (
    insert into fairlead.checks as c (name, verdict, value, detail, advice)
    select f.name, f.verdict, f.value, f.detail, f.advice from found f order by f.name
    on conflict (name) do update set verdict = excluded.verdict, value = excluded.value, detail = excluded.detail,
        advice = excluded.advice, checked_at = clock_timestamp()
)
select f.name from found f left join before b on b.name = f.name
where f.verdict <> coalesce(b.verdict, 'ok');

-- name: stored
select c.name as check, c.verdict, c.detail, c.advice, c.value from fairlead.checks c order by c.name;

-- name: stored_seconds
-- The seconds since the duty `checks` was last done; null if never.
select extract(epoch from clock_timestamp() - d.done_at)::float8 from fairlead.duties d where d.name = 'checks';
