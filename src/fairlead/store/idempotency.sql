-- A create with an Idempotency-Key is done once; a repetition gets the first response.

-- name: begin
-- Returns no row if the key was used before; waits for a transaction that is using it now.
insert into fairlead.idempotency_keys (scope_id, key, body_hash) values (%(scope_id)s, %(key)s, %(body_hash)s)
on conflict do nothing returning true;

-- name: earlier
select body_hash, status_code, answer from fairlead.idempotency_keys
where scope_id = %(scope_id)s and key = %(key)s;

-- name: keep
update fairlead.idempotency_keys set status_code = %(status_code)s, answer = %(answer)s
where scope_id = %(scope_id)s and key = %(key)s;

-- name: forget
delete from fairlead.idempotency_keys where created_at < clock_timestamp() - interval '24 hours';
