-- A move is a row of tenant_moves in the home cell. Its transactions in the two cells check the tenant's placement and
-- epoch: a process that went on with a move that others have ended changes nothing.

-- name: every
select tenant_id, slug, source, target, step, epoch, detail, last_error, started_by, started_at, updated_at
from fairlead.tenant_moves order by started_at, tenant_id limit %(limit)s;

-- name: get
select tenant_id, slug, source, target, step, epoch, detail, last_error, started_by, started_at, updated_at
from fairlead.tenant_moves where tenant_id = %(tenant_id)s;

-- name: identify
-- A tenant of any cell by slug or id, as the home cell knows it.
select n.id, n.slug from (
    select m.tenant_id as id, m.slug from fairlead.tenant_moves m
    union all select c.tenant_id, c.slug from fairlead.tenant_cells c
    union all select t.id, t.slug from fairlead.tenants t
) n
where n.slug = %(name)s or n.id = fairlead.as_id(%(name)s) limit 1;

-- name: begin
-- Returns no row if the tenant is being moved already.
insert into fairlead.tenant_moves (tenant_id, slug, source, target, epoch, started_by)
values (%(tenant_id)s, %(slug)s, %(source)s, %(target)s, %(epoch)s, %(started_by)s)
on conflict do nothing
returning tenant_id, slug, source, target, step, epoch, detail, last_error, started_by, started_at, updated_at;

-- name: advance
-- Changes nothing if the move is at another step, or is another move.
update fairlead.tenant_moves
set step = %(next)s, detail = '{}', last_error = null, updated_at = clock_timestamp()
where tenant_id = %(tenant_id)s and step = any(%(steps)s) and started_at = %(started_at)s;

-- name: flip
-- With `advance` to the step `open` in one transaction: from its commit on the tenant lives in the target.
insert into fairlead.tenant_cells as c (tenant_id, slug, cell, epoch)
values (%(tenant_id)s, %(slug)s, %(target)s, %(epoch)s)
on conflict (tenant_id) do update set cell = excluded.cell, epoch = excluded.epoch, changed_at = clock_timestamp();

-- name: note
-- Changes nothing if the move is at another step.
update fairlead.tenant_moves set detail = %(detail)s, updated_at = clock_timestamp()
where tenant_id = %(tenant_id)s and step = %(step)s and started_at = %(started_at)s;

-- name: note_error
update fairlead.tenant_moves set last_error = %(why)s, updated_at = clock_timestamp()
where tenant_id = %(tenant_id)s and started_at = %(started_at)s;

-- name: finish
delete from fairlead.tenant_moves
where tenant_id = %(tenant_id)s and step = any(%(steps)s) and started_at = %(started_at)s;

-- name: placed
select t.id as tenant_id, t.slug, t.placement, t.moved_to, t.epoch from fairlead.tenants t where t.id = %(tenant_id)s;

-- name: close_gate
-- Refuses writes and claims. A pause of its own stays as it is; ours is known by its author.
update fairlead.tenants
set placement = 'leaving', paused_at = coalesce(paused_at, clock_timestamp()),
    paused_by = case when paused_at is null then %(mark)s else paused_by end,
    pause_note = case when paused_at is null then %(note)s else pause_note end
where id = %(tenant_id)s and placement in ('here', 'leaving') and epoch = %(epoch)s - 1;

-- name: use_up_room
-- So that single enqueues read the tenant again: see store/jobs.sql, enqueue_plain.
update fairlead.tenant_use set roomy_until = '-infinity' where tenant_id = %(tenant_id)s;

-- name: transactions
-- The transactions of this database (null: all; or the ones with these virtual ids) that run now, and whether they hold a
-- lock on a table of Fairlead, as each one does that has read or written one. Prepared transactions have no pid.
with ours as materialized (
    select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %(schema)s and c.relkind in ('r', 'p')
), here as materialized (
    select d.oid from pg_database d where d.datname = current_database()
)
select l.virtualtransaction as id, max(l.pid) as pid,
    bool_or(l.locktype = 'relation' and l.relation = any(array(select oid from ours))
        -- not the locks of vacuum and analyze
        and l.mode in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')) as holds
from pg_locks l
where (%(ids)s::text[] is null or l.virtualtransaction = any(%(ids)s)) and l.pid is distinct from pg_backend_pid()
    and (l.locktype = 'relation' and l.database = (select oid from here)
        or l.locktype = 'virtualxid' and l.pid in (
            select a.pid from pg_stat_activity a where a.datid = (select oid from here)))
    -- not those that copy another tenant
    and l.virtualtransaction not in (
        select c.virtualtransaction from pg_locks c
        where c.locktype = 'advisory' and c.database = (select oid from here)
            and (c.classid::bigint << 32 | c.objid::bigint) = hashtextextended('fairlead tenant copy', 0))
group by l.virtualtransaction;

-- name: running
select count(*) from fairlead.leases where tenant_id = %(tenant_id)s and expires_at < %(parked)s;

-- name: running_limited
-- Those of definitions with a limit for all cells: the source could claim others in their place, while they run in the target.
select count(*) from fairlead.leases l join fairlead.job_definitions d on d.id = l.definition_id
where l.tenant_id = %(tenant_id)s and l.expires_at < %(parked)s and d.max_running is not null and d.only_tenants is null;

-- name: park_leases
-- Takes the leases away from their workers: the tokens no longer fit, and the leases do not expire. Waits for statements
-- that hold them, also for appended logs, which hold a key share lock.
with mine as materialized (
    select l.job_id from fairlead.leases l
    where l.tenant_id = %(tenant_id)s and l.expires_at < %(parked)s order by l.job_id for update
)
update fairlead.leases l set token = fairlead.swap_token(l.token), expires_at = %(parked)s
from mine where l.job_id = mine.job_id;

-- name: unpark_leases
-- Gives them back, with time to find them.
update fairlead.leases l
set token = fairlead.swap_token(l.token), expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
where l.tenant_id = %(tenant_id)s and l.expires_at >= %(parked)s;

-- name: open_gate
update fairlead.tenants
set placement = 'here', moved_to = null, epoch = %(epoch)s,
    paused_at = case when paused_by = %(mark)s then null else paused_at end,
    paused_by = case when paused_by = %(mark)s then null else paused_by end,
    pause_note = case when paused_by = %(mark)s then null else pause_note end
where id = %(tenant_id)s and placement = %(placement)s and epoch = %(epoch)s;

-- name: leave
-- What stays of a tenant that has moved away. Its pause stays, too: nothing of it is claimed here.
update fairlead.tenants set placement = 'moved', moved_to = %(cell)s, epoch = %(epoch)s
where id = %(tenant_id)s and placement = any(%(placements)s) and epoch = any(%(epochs)s);

-- name: hold
-- The tenant's row, locked against a change of its placement.
select t.placement, t.epoch from fairlead.tenants t where t.id = %(tenant_id)s for share;
