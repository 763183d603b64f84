-- Sign-ins in a browser that wait for a code, after the right password. Only the hash of the cookie's secret is kept. One
-- ends with its use, its tries, its time, or any change of its user.

-- name: begin
-- Checking a password takes time: a change of the user meanwhile prevents it.
insert into fairlead.pending_sign_ins (secret_hash, user_id, tenant_id, user_updated_at, expires_at)
select %(secret_hash)s, u.id, u.tenant_id, u.updated_at, clock_timestamp() + make_interval(secs => %(seconds)s)
from fairlead.users u
where u.id = %(id)s and u.password_hash = %(password_hash)s and u.role = %(role)s and u.disabled_at is null
for share;

-- name: find
select u.id, u.tenant_id, u.email, u.role, u.password_hash,
    (select t.slug from fairlead.tenants t where t.id = u.tenant_id) as tenant
from fairlead.pending_sign_ins p join fairlead.users u on u.id = p.user_id
where p.secret_hash = %(secret_hash)s and p.expires_at > clock_timestamp() and p.tries < %(most_tries)s
    and u.updated_at = p.user_updated_at and u.disabled_at is null;

-- name: lock
-- Of two requests with one cookie, the second waits for the first, and then sees what it did.
select true from fairlead.pending_sign_ins where secret_hash = %(secret_hash)s for update;

-- name: count_try
update fairlead.pending_sign_ins set tries = tries + 1 where secret_hash = %(secret_hash)s;

-- name: end
delete from fairlead.pending_sign_ins where secret_hash = %(secret_hash)s;

-- name: forget
delete from fairlead.pending_sign_ins where expires_at < clock_timestamp();
