-- The changes of a tenant (no tenant: of all) for the live feed. Nothing here changes a job, and no cost grows with the
-- jobs: each query reads the end of an index or the leases, and both are bounded.

-- name: add_ticket
-- Each new ticket also removes expired ones.
with gone as (
    delete from fairlead.live_tickets where expires_at < clock_timestamp() - interval '1 minute'
)
insert into fairlead.live_tickets (ticket_hash, tenant_id, actor, role, token_id, session_hash, expires_at)
values (%(ticket_hash)s, %(tenant_id)s, %(actor)s, %(role)s, %(token_id)s, %(session_hash)s,
    clock_timestamp() + make_interval(secs => %(seconds)s));

-- name: redeem
-- Deletes the ticket, so that it works once, before it expires, and while its token or session is valid.
with gone as (
    delete from fairlead.live_tickets where ticket_hash = %(ticket_hash)s
    returning tenant_id, actor, role, token_id, session_hash, expires_at
)
select g.tenant_id, g.actor, g.role, g.token_id, g.session_hash from gone g
where g.expires_at > clock_timestamp() and (
    exists (select from fairlead.tokens t where t.id = g.token_id and t.revoked_at is null
        and (t.expires_at is null or t.expires_at > clock_timestamp()) and fairlead.is_backed(t.user_id, t.role))
    or exists (select from fairlead.sessions s join fairlead.users u on u.id = s.user_id
        where s.secret_hash = g.session_hash and s.revoked_at is null
            and least(s.expires_at, s.idle_ends_at) > clock_timestamp() and u.disabled_at is null));

-- name: good_tokens
select id, addresses, (select n.addresses from fairlead.tenants n where n.id = tokens.tenant_id) as tenant_addresses
from fairlead.tokens
where id = any(%(ids)s) and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())
    and fairlead.is_backed(user_id, role);

-- name: good_sessions
select s.secret_hash, (select n.addresses from fairlead.tenants n where n.id = u.tenant_id) as tenant_addresses
from fairlead.sessions s join fairlead.users u on u.id = s.user_id
where s.secret_hash = any(%(hashes)s) and s.revoked_at is null
    and least(s.expires_at, s.idle_ends_at) > clock_timestamp() and u.disabled_at is null;

-- name: now
select clock_timestamp();

-- name: stirring
-- Those of the tenants that have running jobs, or a change in the last minutes.
select t.id from unnest(%(tenants)s::uuid[]) as t(id)
where exists (select from fairlead.leases l where l.tenant_id = t.id)
    or exists (select from fairlead.counts c where c.leveled in (false, true) and c.tenant_id = t.id
        and c.minute >= date_trunc('minute', clock_timestamp()) - interval '1 minute')
    or exists (select from fairlead.audit_log a where a.tenant_id = t.id
        and a.at > clock_timestamp() - interval '10 seconds');

-- name: tail
-- The newest entries about jobs and gates; by tenant, since that is the log's index.
select a.at, a.action, a.resource_type, a.resource_id, a.tenant_id, (a.details ->> 'attempt_no')::int as attempt_no,
    a.details ->> 'definition_key' as definition_key, coalesce(a.details ->> 'slug', a.details ->> 'name') as name
from fairlead.tenants t cross join lateral (
    select a.at, a.action, a.resource_type, a.resource_id, a.tenant_id, a.details from fairlead.audit_entries a
    where a.tenant_id = t.id and a.at > %(since)s and a.resource_type in ('job', 'tenant', 'host')
    order by a.at desc limit %(limit)s) a
where %(tenant_id)s::uuid is null or t.id = %(tenant_id)s
order by a.at desc limit %(limit)s;

-- name: system_tail
-- Gates that belong to no tenant.
select a.at, a.action, a.resource_type, a.resource_id, a.tenant_id, null::int as attempt_no,
    a.details ->> 'key' as definition_key, a.details ->> 'key' as name
from fairlead.audit_log a
where a.tenant_id is null and a.at > %(since)s and a.resource_type in ('system', 'definition')
order by a.at desc limit %(limit)s;

-- name: running
select l.job_id, l.attempt_no, fairlead.attempt_id(l.job_id, l.attempt_no) as run_id, l.tenant_id, d.key as definition_key, l.started_at, l.progress
from fairlead.leases l
join fairlead.job_definitions d on d.id = l.definition_id
where %(tenant_id)s::uuid is null or l.tenant_id = %(tenant_id)s
limit %(limit)s;

-- name: newer
-- Attempts of these jobs that began since then and ended, after the last one known of each.
select a.job_id, a.attempt_no
from unnest(%(jobs)s::uuid[], %(attempts)s::int[]) as o(job_id, attempt_no)
cross join lateral (
    select a.job_id, a.attempt_no from fairlead.attempts a
    where a.job_id = o.job_id and a.attempt_no > o.attempt_no
        and a.started_at >= %(since)s and a.status <> 'running'
    order by a.job_id, a.attempt_no limit 10) a;

-- name: attempts
-- The states of these attempts, in the given order.
select a.job_id, a.attempt_no, a.id as run_id, a.tenant_id, d.key as definition_key, j.status, a.status as attempt_status,
    a.started_at, a.finished_at, a.duration_ms, left(split_part(a.error_text, e'\n', 1), 200) as error
from unnest(%(jobs)s::uuid[], %(attempts)s::int[]) with ordinality as o(job_id, attempt_no, n)
join fairlead.attempts a on a.job_id = o.job_id and a.attempt_no = o.attempt_no
join fairlead.jobs j on j.id = a.job_id
join fairlead.job_definitions d on d.id = j.definition_id
order by o.n;

-- name: workers
select worker_id from fairlead.job_workers order by worker_id limit %(limit)s;
