-- Principals: users, their sessions, and tokens. Secrets are stored only as hashes.

-- name: add_user
insert into fairlead.users (tenant_id, email, password_hash, role, created_by)
values (%(tenant_id)s, %(email)s, %(password_hash)s, %(role)s, %(created_by)s)
on conflict (lower(email), coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'::uuid)) do nothing
returning id, tenant_id, (select t.slug from fairlead.tenants t where t.id = users.tenant_id) as tenant, email, role, created_by,
    created_at, updated_at, disabled_at, fairlead.has_second_factor(id) as has_second_factor,
    fairlead.invited_until(id) as invitation_expires_at;

-- name: users
select id, tenant_id, (select t.slug from fairlead.tenants t where t.id = users.tenant_id) as tenant, email, role, created_by,
    created_at, updated_at, disabled_at, fairlead.has_second_factor(id) as has_second_factor,
    fairlead.invited_until(id) as invitation_expires_at
from fairlead.users
where (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s) and (%(after)s::uuid is null or id > %(after)s)
order by id limit %(limit)s;

-- name: user
select id, tenant_id, (select t.slug from fairlead.tenants t where t.id = users.tenant_id) as tenant, email, role, created_by,
    created_at, updated_at, disabled_at, fairlead.has_second_factor(id) as has_second_factor,
    fairlead.invited_until(id) as invitation_expires_at
from fairlead.users
where id = %(id)s and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s);

-- name: find_users
select id, tenant_id, (select t.slug from fairlead.tenants t where t.id = users.tenant_id) as tenant, email, role, created_by,
    created_at, updated_at, disabled_at, fairlead.has_second_factor(id) as has_second_factor,
    fairlead.invited_until(id) as invitation_expires_at
from fairlead.users
where (lower(email) = lower(%(name)s) or id = fairlead.as_id(%(name)s))
    and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s);

-- name: change_user
update fairlead.users
set role = coalesce(%(role)s, role), password_hash = coalesce(%(password_hash)s, password_hash),
    disabled_at = case when %(disabled)s::boolean is null then disabled_at
        when %(disabled)s::boolean then coalesce(disabled_at, clock_timestamp()) end,
    updated_at = clock_timestamp()
where id = %(id)s and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
returning id, tenant_id, (select t.slug from fairlead.tenants t where t.id = users.tenant_id) as tenant, email, role, created_by,
    created_at, updated_at, disabled_at, fairlead.has_second_factor(id) as has_second_factor,
    fairlead.invited_until(id) as invitation_expires_at;

-- name: credentials
-- The users who may sign in with an address, which several tenants may have. The oldest come first, so that users who are
-- added later cannot push them out of the limit.
select id, tenant_id, email, role, password_hash,
    (select t.slug from fairlead.tenants t where t.id = users.tenant_id) as tenant
from fairlead.users where lower(email) = lower(%(email)s) and disabled_at is null
order by id limit %(most)s;

-- name: credentials_of
-- A user who was verified without a password.
select id, tenant_id, email, role, password_hash,
    (select t.slug from fairlead.tenants t where t.id = users.tenant_id) as tenant
from fairlead.users where id = %(id)s and disabled_at is null;

-- name: start_session
-- Verifying a user takes time. A change of the user meanwhile, which ends the user's sessions, also ends this session
-- or prevents it. A password alone does not suffice for a user with a second factor.
insert into fairlead.sessions (secret_hash, user_id, tenant_id, expires_at, idle_ends_at, user_agent, proof)
select %(secret_hash)s, u.id, u.tenant_id, clock_timestamp() + make_interval(secs => %(seconds)s),
    clock_timestamp() + make_interval(secs => %(idle_seconds)s), %(user_agent)s, %(proof)s
from fairlead.users u
where u.id = %(id)s and u.password_hash is not distinct from %(password_hash)s and u.role = %(role)s and u.disabled_at is null
    and (%(proof)s <> 'password' or not fairlead.has_second_factor(u.id))
for share;

-- name: session
select u.id, u.tenant_id, u.email, u.role, s.last_seen_at < clock_timestamp() - interval '1 minute' as is_seen_long_ago,
    s.proof <> 'provider' and not fairlead.has_second_factor(u.id) as lacks_second_factor,
    n.addresses as tenant_addresses, coalesce(n.weight, 1) as tenant_weight
from fairlead.sessions s join fairlead.users u on u.id = s.user_id left join fairlead.tenants n on n.id = u.tenant_id
where s.secret_hash = %(secret_hash)s and s.revoked_at is null
    and least(s.expires_at, s.idle_ends_at) > clock_timestamp() and u.disabled_at is null;

-- name: session_seen
-- Never revives a session that has ended. While the tenant is moved its rows must not change: the copy compares them.
update fairlead.sessions s
set last_seen_at = clock_timestamp(), idle_ends_at = clock_timestamp() + make_interval(secs => %(idle_seconds)s)
where s.secret_hash = %(secret_hash)s and s.revoked_at is null and least(s.expires_at, s.idle_ends_at) > clock_timestamp()
    and (s.tenant_id is null
        or exists (select from fairlead.tenants t where t.id = s.tenant_id and t.placement = 'here'));

-- name: session_was_there
-- Also a session that has ended, until it is removed.
select true from fairlead.sessions where secret_hash = %(secret_hash)s;

-- name: end_session
update fairlead.sessions set revoked_at = clock_timestamp()
where secret_hash = %(secret_hash)s and revoked_at is null;

-- name: end_sessions_of
update fairlead.sessions set revoked_at = clock_timestamp()
where user_id = %(user_id)s and revoked_at is null and least(expires_at, idle_ends_at) > clock_timestamp();

-- name: forget_sessions
delete from fairlead.sessions where expires_at < clock_timestamp() - interval '1 day';

-- name: add_token
insert into fairlead.tokens (
    tenant_id, host_id, user_id, name, role, definitions, scopes, addresses, is_personal, prefix, secret_hash, created_by,
    expires_at)
values (
    %(tenant_id)s, %(host_id)s, %(user_id)s, %(name)s, %(role)s, %(definitions)s::text[], %(scopes)s::text[],
    %(addresses)s::text[], %(is_personal)s, %(prefix)s, %(secret_hash)s, %(created_by)s, %(expires_at)s)
returning id, tenant_id, (select t.slug from fairlead.tenants t where t.id = tokens.tenant_id) as tenant, host_id, user_id, name, role,
    definitions, scopes, addresses, is_personal, replaced_by, prefix, created_by, created_at, expires_at, revoked_at, last_used_at,
    fairlead.token_state(revoked_at, expires_at, user_id, role) as state;

-- name: host_is_there
select true from fairlead.hosts where id = %(id)s and tenant_id = %(tenant_id)s;

-- name: tokens
select id, tenant_id, (select t.slug from fairlead.tenants t where t.id = tokens.tenant_id) as tenant, host_id, user_id, name, role,
    definitions, scopes, addresses, is_personal, replaced_by, prefix, created_by, created_at, expires_at, revoked_at, last_used_at,
    fairlead.token_state(revoked_at, expires_at, user_id, role) as state
from fairlead.tokens
where (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s) and (%(after)s::uuid is null or id > %(after)s)
order by id limit %(limit)s;

-- name: revoke_token
-- Returns no row if there is no token to revoke.
update fairlead.tokens set revoked_at = coalesce(revoked_at, clock_timestamp())
where id = %(id)s and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
returning id, tenant_id, (select t.slug from fairlead.tenants t where t.id = tokens.tenant_id) as tenant, host_id, user_id, name, role,
    definitions, scopes, addresses, is_personal, replaced_by, prefix, created_by, created_at, expires_at, revoked_at, last_used_at,
    fairlead.token_state(revoked_at, expires_at, user_id, role) as state;

-- name: end_token
-- Never extends the token. Returns no row if it is not valid any more.
update fairlead.tokens
set expires_at = least(expires_at, clock_timestamp() + make_interval(secs => %(seconds)s))
where id = %(id)s and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())
returning id;

-- name: token
select t.id, t.tenant_id, t.host_id, t.user_id, t.name, t.role, t.definitions, t.scopes, t.addresses, t.is_personal,
    n.addresses as tenant_addresses, coalesce(n.weight, 1) as tenant_weight
from fairlead.tokens t left join fairlead.tenants n on n.id = t.tenant_id
where t.secret_hash = %(secret_hash)s and t.revoked_at is null
    and (t.expires_at is null or t.expires_at > clock_timestamp()) and fairlead.is_backed(t.user_id, t.role);

-- name: revoke_tokens_of
-- The tokens that a user created, in a tenant or (null) in all.
update fairlead.tokens set revoked_at = clock_timestamp()
where user_id = %(user_id)s and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s) and revoked_at is null;

-- name: token_used
update fairlead.tokens set last_used_at = clock_timestamp() where id = any(%(ids)s);

-- name: tenant_addresses
select addresses from fairlead.tenants where id = %(tenant_id)s;

-- name: lock_token
-- A token in a tenant or (null) in any; two rotations of it run one after the other.
select id, tenant_id, (select t.slug from fairlead.tenants t where t.id = tokens.tenant_id) as tenant, host_id, user_id, name, role,
    definitions, scopes, addresses, is_personal, replaced_by, prefix, created_by, created_at, expires_at, revoked_at, last_used_at,
    fairlead.token_state(revoked_at, expires_at, user_id, role) as state
from fairlead.tokens
where id = %(id)s and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
for update;

-- name: replace_token
-- Never extends the token.
update fairlead.tokens
set replaced_by = %(replaced_by)s, expires_at = least(expires_at, clock_timestamp() + make_interval(secs => %(seconds)s))
where id = %(id)s;

-- name: lock_user
-- Two requests that count the user's tokens run one after the other.
select id from fairlead.users where id = %(user_id)s and disabled_at is null for no key update;

-- name: personal_tokens
-- The newest first; those that ended long ago are left out.
select id, tenant_id, (select t.slug from fairlead.tenants t where t.id = tokens.tenant_id) as tenant, host_id, user_id, name, role,
    definitions, scopes, addresses, is_personal, replaced_by, prefix, created_by, created_at, expires_at, revoked_at, last_used_at,
    fairlead.token_state(revoked_at, expires_at, user_id, role) as state
from fairlead.tokens
where user_id = %(user_id)s and is_personal
    and least(revoked_at, expires_at) > clock_timestamp() - interval '30 days'
order by id desc limit %(limit)s;

-- name: count_personal_tokens
select count(*) from fairlead.tokens
where user_id = %(user_id)s and is_personal and revoked_at is null and expires_at > clock_timestamp();

-- name: revoke_personal_token
-- Returns no row if the user has no such token.
update fairlead.tokens set revoked_at = coalesce(revoked_at, clock_timestamp())
where id = %(id)s and user_id = %(user_id)s and is_personal
returning id, tenant_id, (select t.slug from fairlead.tenants t where t.id = tokens.tenant_id) as tenant, host_id, user_id, name, role,
    definitions, scopes, addresses, is_personal, replaced_by, prefix, created_by, created_at, expires_at, revoked_at, last_used_at,
    fairlead.token_state(revoked_at, expires_at, user_id, role) as state;
