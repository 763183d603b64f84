-- A definition's max_running over several cells: each cell has an allotment, a part of it, which its claims do not exceed.
--
-- The home cell keeps a grant for each cell: no less than the cell's allotment, and no less than what runs there. The
-- grants of a definition together never exceed its max_running. So a grant is raised before the allotment is, and lowered
-- after the allotment was, by what was running then. Rounds are numbered: an earlier round cannot raise an allotment that
-- a later one has lowered, nor a grant after a later one has begun. A cell that is away keeps its grant.

-- name: take_round
-- Begins a round, if it is time; returns no row if another process did a moment ago.
update fairlead.cell_rounds set round = round + 1, due_at = clock_timestamp() + make_interval(secs => %(seconds)s)
where due_at <= clock_timestamp() returning round;

-- name: is_due
select due_at <= clock_timestamp() from fairlead.cell_rounds;

-- name: hold_round
-- Holds the round until the transaction ends; no row if a later one has begun.
select from fairlead.cell_rounds where round = %(round)s for update;

-- name: limits
-- In the home cell: the definitions with a limit.
select d.id, d.max_running from fairlead.job_definitions d where d.max_running is not null and d.only_tenants is null order by d.id;

-- name: grants
select g.definition_id, g.cell_id, g.number from fairlead.allotment_grants g;

-- name: put_grant
insert into fairlead.allotment_grants (definition_id, cell_id, number) values (%(definition_id)s, %(cell_id)s, %(number)s)
on conflict (definition_id, cell_id) do update set number = excluded.number;

-- name: forget_grants
-- Those of removed cells, which have no tenants, and of definitions without a limit.
delete from fairlead.allotment_grants g
where not exists (select from fairlead.cells c where c.cell_id = g.cell_id)
    or not exists (select from fairlead.job_definitions d where d.id = g.definition_id and d.max_running is not null);

-- name: demand
-- What waits, up to a number, and runs in this cell, and its allotment.
select d.id, (
        select count(*) from (
            select from fairlead.ready r
            where r.host_id is null and r.priority > -2147483648 and r.definition_id = d.id limit %(most)s) r),
    fairlead.running_in('definition', d.id, null), coalesce(a.number, 0)
from unnest(%(ids)s::uuid[]) as d(id) left join fairlead.allotments a on a.definition_id = d.id;

-- name: add_lock
insert into fairlead.limit_locks (scope, scope_id) values ('definition', %(id)s) on conflict do nothing;

-- name: lock
-- Every row of the limit's lock, as a claim that counts exactly: claims that hold some end first, the next ones look again.
select slot from fairlead.limit_locks where scope = 'definition' and scope_id = %(id)s order by slot for update;

-- name: lower
insert into fairlead.allotments as a (definition_id, number, round) values (%(id)s, 0, %(round)s)
on conflict (definition_id) do update set number = least(a.number, %(number)s), round = %(round)s
where a.round <= %(round)s;

-- name: count_running
-- After `lower`, in a statement of its own: no claim is in progress. No row if a later round has been here.
select greatest(a.number, fairlead.running_in('definition', a.definition_id, null))
from fairlead.allotments a where a.definition_id = %(id)s and a.round = %(round)s;

-- name: raise_
insert into fairlead.allotments as a (definition_id, number, round) values (%(id)s, %(number)s, %(round)s)
on conflict (definition_id) do update set number = %(number)s, round = %(round)s where a.round <= %(round)s;

-- name: begin_in_home
-- The first other cell was added: the home cell has everything.
with begun as (
    update fairlead.system set is_allotted = true where not is_allotted returning cell_id
), granted as (
    insert into fairlead.allotment_grants (definition_id, cell_id, number)
    select d.id, b.cell_id, d.max_running from fairlead.job_definitions d, begun b where d.max_running is not null
)
insert into fairlead.allotments (definition_id, number, round)
select d.id, d.max_running, 0 from fairlead.job_definitions d, begun b where d.max_running is not null
on conflict (definition_id) do update set number = excluded.number;

-- name: begin
-- In another cell: nothing, until a round.
update fairlead.system set is_allotted = true where not is_allotted;

-- name: end
-- The home cell is alone again.
with ended as (
    update fairlead.system set is_allotted = false where not exists (select from fairlead.cells) returning true
), gone as (
    delete from fairlead.allotments where exists (select from ended)
)
delete from fairlead.allotment_grants where exists (select from ended);

-- name: fingerprint
-- Changes whenever a definition of all tenants, or the system's gate, changes.
select md5(concat_ws(' ', count(*), max(d.updated_at), sum(d.version), (select row(s.online, s.note, s.changed_at) from fairlead.system s)))
from fairlead.job_definitions d where d.only_tenants is null;

-- name: definitions
select coalesce(jsonb_agg(to_jsonb(d)), '[]')::text, (select to_jsonb(s) from fairlead.system s)::text
from fairlead.job_definitions d where d.only_tenants is null;

-- name: hold_new
select fairlead.hold_new_definition(h.id)
from jsonb_populate_recordset(null::fairlead.job_definitions, %(definitions)s) h order by h.id;

-- name: missing
-- Those of the definitions that this cell does not have.
select coalesce(jsonb_agg(h), '[]')::text from jsonb_array_elements(%(definitions)s) h
where not exists (select from fairlead.job_definitions d where d.key = h ->> 'key');

-- name: copy_definitions
-- The definitions of the home cell, with their gates. Returns how many changed.
insert into fairlead.job_definitions as d (
    id, key, description, kind, arg_schema, secret_paths, timeout_seconds, max_attempts, backoff, max_running,
    max_running_per_tenant, rate, rate_per_tenant, by_key, slots, requires, prefers, default_priority, resource_pointer, audit_action, retention_days, is_active, engine, queue,
    paused_at, paused_by, pause_note)
select h.id, h.key, h.description, h.kind, h.arg_schema, h.secret_paths, h.timeout_seconds, h.max_attempts, h.backoff,
    h.max_running, h.max_running_per_tenant, h.rate, h.rate_per_tenant, h.by_key, h.slots, h.requires, h.prefers, h.default_priority, h.resource_pointer, h.audit_action, h.retention_days,
    h.is_active, h.engine, h.queue, h.paused_at, h.paused_by, h.pause_note
from jsonb_populate_recordset(null::fairlead.job_definitions, %(definitions)s) h
on conflict (key) do update set
    description = excluded.description, kind = excluded.kind, arg_schema = excluded.arg_schema,
    secret_paths = excluded.secret_paths, timeout_seconds = excluded.timeout_seconds, max_attempts = excluded.max_attempts,
    backoff = excluded.backoff, max_running = excluded.max_running,
    max_running_per_tenant = excluded.max_running_per_tenant, rate = excluded.rate,
    rate_per_tenant = excluded.rate_per_tenant, by_key = excluded.by_key, slots = excluded.slots, requires = excluded.requires,
    prefers = excluded.prefers, default_priority = excluded.default_priority,
    resource_pointer = excluded.resource_pointer, audit_action = excluded.audit_action,
    retention_days = excluded.retention_days, is_active = excluded.is_active, engine = excluded.engine,
    queue = excluded.queue, paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_note = excluded.pause_note
where d.only_tenants is null
    and (d.description, d.kind, d.arg_schema, d.secret_paths, d.timeout_seconds, d.max_attempts, d.backoff, d.max_running,
        d.max_running_per_tenant, d.rate, d.rate_per_tenant, d.by_key, d.slots, d.requires, d.prefers, d.default_priority, d.resource_pointer, d.audit_action, d.retention_days, d.is_active,
        d.engine, d.queue, d.paused_at, d.paused_by, d.pause_note)
    is distinct from
        (excluded.description, excluded.kind, excluded.arg_schema, excluded.secret_paths, excluded.timeout_seconds,
        excluded.max_attempts, excluded.backoff, excluded.max_running, excluded.max_running_per_tenant, excluded.rate,
        excluded.rate_per_tenant, excluded.by_key, excluded.slots, excluded.requires, excluded.prefers,
        excluded.default_priority, excluded.resource_pointer, excluded.audit_action, excluded.retention_days,
        excluded.is_active, excluded.engine, excluded.queue, excluded.paused_at, excluded.paused_by, excluded.pause_note);

-- name: copy_gate
update fairlead.system s set online = h.online, note = h.note, changed_by = h.changed_by, changed_at = h.changed_at
from jsonb_to_record(%(gate)s) as h(online boolean, note text, changed_by text, changed_at timestamptz)
where (s.online, s.note, s.changed_by) is distinct from (h.online, h.note, h.changed_by);
