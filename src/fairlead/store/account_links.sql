-- Links with which people set a password. A user has at most one live link of each purpose, and a change of the user ends it.

-- name: lock_user
-- Two links of one user are made one after the other.
select id, tenant_id, (select t.slug from fairlead.tenants t where t.id = users.tenant_id) as tenant, email, role,
    password_hash is not null as has_password
from fairlead.users
where id = %(id)s and disabled_at is null and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
for no key update;

-- name: revoke
update fairlead.account_links set revoked_at = clock_timestamp()
where user_id = %(user_id)s and purpose = %(purpose)s and used_at is null and revoked_at is null;

-- name: add
insert into fairlead.account_links (secret_hash, user_id, tenant_id, purpose, created_by, expires_at, user_updated_at)
select %(secret_hash)s, u.id, u.tenant_id, %(purpose)s, %(created_by)s,
    clock_timestamp() + make_interval(secs => %(seconds)s), u.updated_at
from fairlead.users u where u.id = %(user_id)s
returning expires_at;

-- name: accounts
-- The accounts with a password of an address, the oldest first: the passwords of others cannot be reset.
select id, tenant_id, (select t.slug from fairlead.tenants t where t.id = users.tenant_id) as tenant, email, role,
    true as has_password
from fairlead.users where lower(email) = lower(%(email)s) and disabled_at is null and password_hash is not null
order by id limit %(most)s;

-- name: find
select u.id, u.tenant_id, (select t.slug from fairlead.tenants t where t.id = u.tenant_id) as tenant, u.email, u.role,
    u.password_hash is not null as has_password
from fairlead.account_links l join fairlead.users u on u.id = l.user_id
where l.secret_hash = %(secret_hash)s and l.purpose = %(purpose)s and l.used_at is null and l.revoked_at is null
    and l.expires_at > clock_timestamp() and u.disabled_at is null and u.updated_at = l.user_updated_at;

-- name: use
-- Of two uses at once, the second waits here for the first and then finds the link used.
update fairlead.account_links l set used_at = clock_timestamp()
where l.secret_hash = %(secret_hash)s and l.purpose = %(purpose)s and l.used_at is null and l.revoked_at is null
    and l.expires_at > clock_timestamp()
returning l.user_id, l.user_updated_at;

-- name: set_password
-- Changes nothing if the user was changed since the link was made.
update fairlead.users set password_hash = %(password_hash)s, updated_at = clock_timestamp()
where id = %(user_id)s and updated_at = %(user_updated_at)s and disabled_at is null;

-- name: remove_user
-- An invited user who has never signed in: nothing else refers to the user.
with unlinked as (
    delete from fairlead.account_links where user_id = %(user_id)s
)
delete from fairlead.users where id = %(user_id)s and password_hash is null;

-- name: has_signed_in
select exists (select from fairlead.sessions where user_id = %(user_id)s)
    or exists (select from fairlead.identities where user_id = %(user_id)s)
    or exists (select from fairlead.tokens where user_id = %(user_id)s);

-- name: note_mail
insert into fairlead.account_mails (job_id) values (%(job_id)s);

-- name: clear_mails
-- A job that is being retried by hand keeps its payload until it has ended again.
with mails as materialized (
    select m.job_id from fairlead.account_mails m
    where not exists (select from fairlead.jobs j where j.id = m.job_id and j.status <= 'running')
    order by m.job_id limit %(limit)s for update skip locked
), held as materialized (
    select j.id from fairlead.job_records j
    where j.id = any(array(select job_id from mails)) and j.status > 'running' for update skip locked
), cleared as (
    update fairlead.job_records set payload = jsonb_set(payload, '{secrets}', '{}')
    where id = any(array(select id from held)) returning id
)
delete from fairlead.account_mails m
where m.job_id = any(array(select job_id from mails))
    and (m.job_id in (select id from cleared) or not exists (select from fairlead.jobs j where j.id = m.job_id));

-- name: forget
-- An invitation that expired stays, so that lists show it, until it is sent again or withdrawn.
delete from fairlead.account_links
where expires_at < clock_timestamp() - interval '1 day'
    and (purpose = 'reset' or used_at is not null or revoked_at is not null);
