-- People whom identity providers identify, their sessions, and sign-ins under way. Secrets are stored only as hashes.

-- name: begin
insert into fairlead.oidc_sign_ins (state_hash, browser_hash, provider, next_page, expires_at)
values (%(state_hash)s, %(browser_hash)s, %(provider)s, %(next_page)s, clock_timestamp() + make_interval(secs => %(seconds)s));

-- name: take
-- Once, and only in the browser in which it began: another browser's attempt does not use it up.
delete from fairlead.oidc_sign_ins
where state_hash = %(state_hash)s and browser_hash = %(browser_hash)s and provider = %(provider)s
returning case when expires_at > clock_timestamp() then next_page end;

-- name: find
-- Locked, so that sign-ins of one person follow each other.
select i.user_id, u.email, u.role, u.disabled_at is not null as is_disabled
from fairlead.identities i join fairlead.users u on u.id = i.user_id
where i.issuer = %(issuer)s and i.subject = %(subject)s and i.tenant_id is not distinct from %(tenant_id)s
for update of i;

-- name: find_user_with_address
select u.id as user_id, u.email, u.role, u.disabled_at is not null as is_disabled
from fairlead.users u
where lower(u.email) = lower(%(email)s) and u.tenant_id is not distinct from %(tenant_id)s;

-- name: add
-- No row if the person has an identity here, or the user belongs to another person at this issuer.
insert into fairlead.identities (user_id, tenant_id, issuer, subject, provider)
values (%(user_id)s, %(tenant_id)s, %(issuer)s, %(subject)s, %(provider)s)
on conflict do nothing;

-- name: mark
with back as (
    update fairlead.users set left_at = null where id = %(user_id)s and left_at is not null
)
update fairlead.identities set last_sign_in_at = clock_timestamp(), provider = %(provider)s
where user_id = %(user_id)s and issuer = %(issuer)s;

-- name: change_user
-- No row if another user of the tenant has the address.
update fairlead.users u set role = %(role)s, email = %(email)s, updated_at = clock_timestamp()
where u.id = %(user_id)s and not exists (
    select from fairlead.users o
    where lower(o.email) = lower(%(email)s) and o.tenant_id is not distinct from u.tenant_id and o.id <> u.id);

-- name: add_session
insert into fairlead.oidc_sessions (secret_hash, tenant_id, user_id, issuer, provider, sid)
values (%(secret_hash)s, %(tenant_id)s, %(user_id)s, %(issuer)s, %(provider)s, %(sid)s);

-- name: provider_of_session
select provider from fairlead.oidc_sessions where secret_hash = %(secret_hash)s;

-- name: list_of_user
select id, provider, issuer, subject, created_at, last_sign_in_at
from fairlead.identities where user_id = %(user_id)s order by last_sign_in_at desc, id;

-- name: lock_of_user
-- All of them: of two that are removed at once, the second removal sees that the first is gone.
select id, provider, issuer, subject, created_at, last_sign_in_at
from fairlead.identities where user_id = %(user_id)s order by id
for update;

-- name: has_password
select password_hash is not null from fairlead.users where id = %(user_id)s;

-- name: end_sessions_of_identity
update fairlead.sessions s set revoked_at = clock_timestamp()
from fairlead.oidc_sessions o
where s.secret_hash = o.secret_hash and o.user_id = %(user_id)s and o.issuer = %(issuer)s
    and s.revoked_at is null and least(s.expires_at, s.idle_ends_at) > clock_timestamp()
returning s.secret_hash;

-- name: leave
update fairlead.users set left_at = clock_timestamp() where id = %(user_id)s and left_at is null;

-- name: remove
delete from fairlead.identities where id = %(id)s;

-- name: end_elsewhere
-- A person who has changed tenants keeps no session in the former ones.
update fairlead.sessions s set revoked_at = clock_timestamp()
from fairlead.oidc_sessions o join fairlead.identities i on i.user_id = o.user_id and i.issuer = o.issuer
where s.secret_hash = o.secret_hash and s.revoked_at is null and i.issuer = %(issuer)s and i.subject = %(subject)s
    and i.tenant_id is distinct from %(tenant_id)s
returning s.user_id, s.tenant_id;

-- name: leave_elsewhere
-- The tokens of the users whom the person was are refused from now on: see functions/is_backed.sql.
update fairlead.users u set left_at = clock_timestamp()
from fairlead.identities i
where u.id = i.user_id and u.left_at is null and i.issuer = %(issuer)s and i.subject = %(subject)s
    and i.tenant_id is distinct from %(tenant_id)s;

-- name: end_sessions
-- Those of the provider's session, of the person, or (if both are named) of both.
update fairlead.sessions s set revoked_at = clock_timestamp()
from fairlead.oidc_sessions o join fairlead.identities i on i.user_id = o.user_id and i.issuer = o.issuer
where s.secret_hash = o.secret_hash and s.revoked_at is null and o.issuer = %(issuer)s
    and (%(sid)s::text is null or o.sid = %(sid)s) and (%(subject)s::text is null or i.subject = %(subject)s)
returning s.user_id, s.tenant_id;

-- name: note_logout
insert into fairlead.oidc_logouts (token_hash, expires_at)
values (%(token_hash)s, clock_timestamp() + make_interval(secs => %(seconds)s))
on conflict do nothing;

-- name: forget_sign_ins
delete from fairlead.oidc_sign_ins where expires_at < clock_timestamp();

-- name: forget_logouts
delete from fairlead.oidc_logouts where expires_at < clock_timestamp();
