-- The account of a user who has signed in: preferences, password and sessions. Only the user's own id is ever given.

-- name: preferences
select timezone, hour_cycle from fairlead.users where id = %(user_id)s;

-- name: set_preferences
update fairlead.users set timezone = %(timezone)s, hour_cycle = %(hour_cycle)s where id = %(user_id)s;

-- name: account
select u.id, u.tenant_id, t.slug as tenant, u.email, u.role, u.created_at, u.timezone, u.hour_cycle,
    u.password_hash is not null as has_password
from fairlead.users u left join fairlead.tenants t on t.id = u.tenant_id
where u.id = %(user_id)s and u.disabled_at is null;

-- name: password_hash
select password_hash from fairlead.users where id = %(user_id)s and disabled_at is null;

-- name: set_password
-- Changes nothing if the password was changed since the old one was checked.
update fairlead.users set password_hash = %(new_hash)s, updated_at = clock_timestamp()
where id = %(user_id)s and password_hash = %(old_hash)s and disabled_at is null;

-- name: sessions
select id, created_at, last_seen_at, least(expires_at, idle_ends_at) as expires_at, host(ip) as ip, user_agent,
    secret_hash = %(current)s as is_current
from fairlead.sessions
where user_id = %(user_id)s and revoked_at is null and least(expires_at, idle_ends_at) > clock_timestamp()
order by secret_hash = %(current)s desc, last_seen_at desc, id limit %(limit)s;

-- name: end_session
update fairlead.sessions set revoked_at = clock_timestamp()
where id = %(id)s and user_id = %(user_id)s and revoked_at is null and least(expires_at, idle_ends_at) > clock_timestamp();

-- name: end_other_sessions
update fairlead.sessions set revoked_at = clock_timestamp()
where user_id = %(user_id)s and secret_hash <> %(current)s and revoked_at is null
    and least(expires_at, idle_ends_at) > clock_timestamp();
