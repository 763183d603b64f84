-- The second factors of users. A row without `confirmed_at` is a set-up that has begun, and counts for nothing. A code is
-- accepted once: the transaction that accepts one holds the lock of the row, and moves `last_step` or removes the recovery code.

-- name: lock
select f.user_id, f.tenant_id, f.secret, f.confirmed_at, f.last_step, f.recovery_hashes,
    floor(extract(epoch from clock_timestamp()) / %(step_seconds)s)::bigint as step,
    f.created_at > clock_timestamp() - make_interval(secs => %(setup_seconds)s) as is_fresh
from fairlead.second_factors f where f.user_id = %(user_id)s
for update;

-- name: get
select f.confirmed_at, cardinality(f.recovery_hashes) as recovery_codes_left
from fairlead.second_factors f where f.user_id = %(user_id)s and f.confirmed_at is not null;

-- name: begin
-- Replaces an earlier set-up that was not confirmed; changes nothing if the second factor is active.
insert into fairlead.second_factors as f (user_id, tenant_id, secret)
select u.id, u.tenant_id, %(secret)s from fairlead.users u where u.id = %(user_id)s and u.disabled_at is null
on conflict (user_id) do update set secret = excluded.secret, created_at = clock_timestamp(), last_step = null
where f.confirmed_at is null;

-- name: confirm
update fairlead.second_factors
set confirmed_at = clock_timestamp(), last_step = %(step)s, recovery_hashes = %(hashes)s::bytea[]
where user_id = %(user_id)s and confirmed_at is null;

-- name: use_step
update fairlead.second_factors set last_step = %(step)s
where user_id = %(user_id)s and (last_step is null or last_step < %(step)s);

-- name: use_recovery_code
update fairlead.second_factors set recovery_hashes = array_remove(recovery_hashes, %(hash)s::bytea)
where user_id = %(user_id)s and %(hash)s::bytea = any(recovery_hashes);

-- name: set_recovery_codes
update fairlead.second_factors set recovery_hashes = %(hashes)s::bytea[] where user_id = %(user_id)s;

-- name: remove
-- An unfinished set-up goes, too. Returns whether the second factor was active.
delete from fairlead.second_factors where user_id = %(user_id)s returning confirmed_at is not null;

-- name: forget_setups
delete from fairlead.second_factors
where confirmed_at is null and created_at < clock_timestamp() - make_interval(secs => %(setup_seconds)s);

-- name: touch_user
-- Waits for sessions that are just starting, so that the caller then ends them, too; ends pending sign-ins.
update fairlead.users set updated_at = clock_timestamp() where id = %(user_id)s;
