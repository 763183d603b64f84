-- Hosts and resources belong to a tenant, and to the same one.

-- name: hosts
-- A host is online if its agent was seen within two of its polls.
select h.id, h.tenant_id, (select t.slug from fairlead.tenants t where t.id = h.tenant_id) as tenant,
    h.name, h.max_running, h.labels, h.paused_at, h.paused_by, h.pause_note, h.draining,
    h.session_at, h.last_seen_at, h.agent_version, coalesce(h.last_seen_at > clock_timestamp() - interval '60 seconds', false) as online,
    (select count(*) from fairlead.leases l where l.host_id = h.id)::int as running, h.created_by, h.created_at,
    h.updated_at
from fairlead.hosts h
where

-- name: host_by_id
h.id = %(id)s and (%(tenant_id)s::uuid is null or h.tenant_id = %(tenant_id)s)

-- name: hosts_page
(%(tenant_id)s::uuid is null or h.tenant_id = %(tenant_id)s) and (%(after)s::uuid is null or h.id > %(after)s)
order by h.id limit %(limit)s

-- name: running
-- The jobs that these hosts run now, by their leases.
select l.host_id, l.job_id, d.key as definition_key
from fairlead.leases l join fairlead.job_definitions d on d.id = l.definition_id
where l.host_id = any(%(ids)s) and (%(tenant_id)s::uuid is null or l.tenant_id = %(tenant_id)s)
order by l.job_id limit %(limit)s;

-- name: add_host
insert into fairlead.hosts (tenant_id, name, max_running, labels, created_by)
values (%(tenant_id)s, %(name)s, %(max_running)s, %(labels)s, %(created_by)s)
on conflict (tenant_id, name) do nothing returning id;

-- name: change_host
update fairlead.hosts
set name = coalesce(%(name)s, name), max_running = coalesce(%(max_running)s, max_running),
    labels = coalesce(%(labels)s, labels), draining = coalesce(%(draining)s, draining), updated_at = clock_timestamp()
where id = %(id)s;

-- name: hold_host
-- The host cannot be removed until the transaction ends.
select id from fairlead.hosts where id = %(id)s for key share;

-- name: hold_host_alone
-- No transaction can enqueue for the host until this one ends.
select id from fairlead.hosts where id = %(id)s for update;

-- name: jobs_of_host
-- The number of jobs that wait for the host, and that run on it.
select (select count(*) from fairlead.ready where host_id = %(id)s)
        + (select count(*) from fairlead.later where host_id = %(id)s and tenant_id = %(tenant_id)s),
    (select count(*) from fairlead.leases where host_id = %(id)s);

-- name: remove_host
-- Removes a host with all that belongs to it; its jobs keep its id. Returns the number of its resources.
with codes as (
    delete from fairlead.enrolment_codes where host_id = %(id)s
), tokens as (
    delete from fairlead.tokens where host_id = %(id)s
), things as (
    delete from fairlead.resources where host_id = %(id)s returning 1
), host as (
    delete from fairlead.hosts where id = %(id)s
)
select count(*) from things;

-- name: forget_limits
-- The limit locks of removed hosts.
delete from fairlead.limit_locks k
where k.scope = 'host' and not exists (select from fairlead.hosts h where h.id = k.scope_id);

-- name: hosts_named
(h.id = fairlead.as_id(%(name)s) or h.name = %(name)s) and (%(tenant_id)s::uuid is null or h.tenant_id = %(tenant_id)s)
order by h.id limit 10

-- name: resources
select r.id, r.tenant_id, (select t.slug from fairlead.tenants t where t.id = r.tenant_id) as tenant,
    r.host_id, h.name as host, r.kind, r.name, r.created_by, r.created_at, r.updated_at
from fairlead.resources r join fairlead.hosts h on h.id = r.host_id
where

-- name: resource_by_id
r.id = %(id)s and (%(tenant_id)s::uuid is null or r.tenant_id = %(tenant_id)s)

-- name: resources_named
(r.id = fairlead.as_id(%(name)s) or r.name = %(name)s) and (%(tenant_id)s::uuid is null or r.tenant_id = %(tenant_id)s)
order by r.id limit 10

-- name: resources_page
(%(tenant_id)s::uuid is null or r.tenant_id = %(tenant_id)s) and (%(host_id)s::uuid is null or r.host_id = %(host_id)s)
and (%(kind)s::text is null or r.kind = %(kind)s) and (%(after)s::uuid is null or r.id > %(after)s)
order by r.id limit %(limit)s

-- name: add_resource
insert into fairlead.resources (tenant_id, host_id, kind, name, created_by)
values (%(tenant_id)s, %(host_id)s, %(kind)s, %(name)s, %(created_by)s)
on conflict (tenant_id, kind, name) do nothing returning id;

-- name: change_resource
update fairlead.resources
set host_id = coalesce(%(host_id)s, host_id), name = coalesce(%(name)s, name), updated_at = clock_timestamp()
where id = %(id)s;

-- name: add_code
insert into fairlead.enrolment_codes (code_hash, tenant_id, host_id, created_by, expires_at)
values (%(code_hash)s, %(tenant_id)s, %(host_id)s, %(created_by)s, clock_timestamp() + make_interval(secs => %(seconds)s))
returning expires_at;

-- name: use_code
-- Only the first use of a code succeeds.
update fairlead.enrolment_codes set used_at = clock_timestamp()
where code_hash = %(code_hash)s and used_at is null and expires_at > clock_timestamp()
returning tenant_id, host_id;

-- name: forget_codes
delete from fairlead.enrolment_codes where expires_at < clock_timestamp() - interval '1 day';

-- name: revoke_tokens
update fairlead.tokens set revoked_at = clock_timestamp()
where host_id = %(host_id)s and role = 'agent' and revoked_at is null
returning id;

-- name: begin_session
-- The session that started last is the host's.
update fairlead.hosts
set session_id = %(session_id)s, session_at = clock_timestamp(), last_seen_at = clock_timestamp(),
    agent_version = %(version)s
where id = %(id)s and session_id is distinct from %(session_id)s
returning id;

-- name: states
-- The states of these hosts, for the waiting agents.
select h.id, h.session_id, h.paused_at is not null as paused, h.draining, h.pause_note,
    exists (select from fairlead.ready r where r.host_id = h.id)
        and (select count(*) from fairlead.leases l where l.host_id = h.id) < h.max_running as has_work,
    exists (select from fairlead.deliveries d where d.host_id = h.id) as has_undelivered,
    array(
        select l.job_id from fairlead.leases l join fairlead.jobs j on j.id = l.job_id
        where l.host_id = h.id and j.cancel_requested_at is not null order by l.job_id) as canceling
from fairlead.hosts h where h.id = any(%(ids)s);

-- name: with_work
-- Goes from host to host along the index, so that neither waiting jobs nor hosts without any cost time. Without the limit,
-- the planner would count the leases of every host.
with recursive walk as (
    (select r.host_id from fairlead.ready r where r.host_id is not null order by r.host_id limit 1)
    union all
    select (select r.host_id from fairlead.ready r where r.host_id > w.host_id order by r.host_id limit 1)
    from walk w where w.host_id is not null
)
select h.id
from walk w cross join lateral (
    select h.id, h.max_running from fairlead.hosts h where h.id = w.host_id limit 1) h
where (select count(*) from fairlead.leases l where l.host_id = h.id) < h.max_running;

-- name: has_work
select exists (select from fairlead.ready where host_id = %(host_id)s);

-- name: seen
-- Skips a host that another transaction is updating: that one sets the time, too.
update fairlead.hosts set last_seen_at = clock_timestamp()
where id = any(array(
    select id from fairlead.hosts
    where id = any(%(ids)s) and (last_seen_at is null or last_seen_at < clock_timestamp() - interval '5 seconds')
    for no key update skip locked));

-- name: deliver
-- Only to the host's session, which cannot change before this is committed.
with agent as materialized (
    select id from fairlead.hosts where id = %(host_id)s and session_id = %(session_id)s for share
), given as (
    insert into fairlead.deliveries (job_id, attempt_no, token, tenant_id, host_id)
    select l.job_id, l.attempt_no, l.token, l.tenant_id, l.host_id
    from agent join fairlead.leases l on l.host_id = agent.id where l.token = %(token)s
    on conflict (job_id) do update
        set attempt_no = excluded.attempt_no, token = excluded.token, host_id = excluded.host_id
    returning job_id, attempt_no
)
select g.job_id, fairlead.attempt_id(g.job_id, g.attempt_no) from given g;

-- name: accept
-- In one statement, since the job waits for it: renews the lease and ends the delivery. Returns no row if the lease is not
-- this host's, or not any more.
with renewed as (
    update fairlead.leases set expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
    where job_id = %(job_id)s and attempt_no = %(attempt_no)s and token = %(token)s and host_id = %(host_id)s
        and expires_at > clock_timestamp()
    returning job_id
), arrived as (
    delete from fairlead.deliveries d using renewed r
    where d.job_id = r.job_id and d.attempt_no = %(attempt_no)s and d.token = %(token)s
)
select j.cancel_requested_at is not null from renewed r join fairlead.jobs j on j.id = r.job_id;

-- name: undelivered
-- Deliveries that were not accepted and whose leases still exist; only for the host's session, which cannot change meanwhile.
select d.job_id, d.attempt_no, d.token from fairlead.hosts h
join fairlead.deliveries d on d.host_id = h.id
join fairlead.leases l on l.job_id = d.job_id and l.attempt_no = d.attempt_no and l.token = d.token
where h.id = %(host_id)s and h.session_id = %(session_id)s
order by d.job_id limit %(limit)s for share of h;

-- name: forget_deliveries
-- Without the token: that of a lease changes while its tenant is moved.
delete from fairlead.deliveries d where not exists (
    select from fairlead.leases l where l.job_id = d.job_id and l.attempt_no = d.attempt_no);

-- name: leases_of
select job_id from fairlead.leases where host_id = %(host_id)s and job_id = any(%(jobs)s);
