-- name: secret_stale
-- An attempt got a value of a secret that had been replaced before it was claimed, or that was never set.
-- work of chaos.secret: pg_temp.secrets where strpos(owner, '/') = 0
with setting as (
    select c.what ->> 'owner' as owner, (c.what ->> 'number')::bigint as number, c.at,
        case when c.outcome = 'ok' then c.answered_at end as known_at
    from pg_temp.calls c where c.kind = 'secret'
    union all
    -- before the run
    select distinct s.owner, 0, 0.0, 0.0 from pg_temp.secrets s where strpos(s.owner, '/') = 0
)
select s.job_id, 'attempt ' || s.attempt_no || ' got value ' || s.number || ' of the secret of ' || s.owner
    || coalesce(', which was replaced by value ' || later.number || ' ' || round((t.at - later.known_at)::numeric, 3)
        || ' s before it was claimed', ', which was not set')
from pg_temp.secrets s
join (
    select t.job_id, t.attempt_no, extract(epoch from t.started_at)::float8 - %(offset)s - %(tolerance)s as at
    from pg_temp.tries t) t on t.job_id = s.job_id and t.attempt_no = s.attempt_no
left join setting v on v.owner = s.owner and v.number = s.number and v.at < s.at
left join lateral (
    select l.number, l.known_at from setting l
    where l.owner = v.owner and l.at > v.known_at and l.known_at < t.at order by l.known_at limit 1) later on true
where strpos(s.owner, '/') = 0 and (v.owner is null or later.number is not null);

-- name: secret_wrong
-- An attempt got the secret of another job or tenant, or one that is not of the payload which its job had.
-- work of chaos.secret: pg_temp.secrets
select s.job_id, 'attempt ' || s.attempt_no || ' got value ' || s.number || ' of the secret of ' || s.owner || ', expected '
    || w.owner || coalesce(' and value ' || w.number, '')
from pg_temp.secrets s
join fairlead.job_records j on j.id = s.job_id
join fairlead.tenants t on t.id = j.tenant_id
cross join lateral (
    select case
            when not j.payload ? 'token' then 'commands'
            when jsonb_typeof(j.payload -> 'token') = 'object' and j.payload -> 'token' ? '$secret' then t.slug
            else j.correlation_id || '/' || (j.payload ->> 'n') end as owner,
        case when j.payload ? 'token' and not coalesce(j.payload -> 'token' ? '$secret', false)
            then coalesce((j.payload ->> 'edit')::bigint, 0) end as number) w
where s.owner <> w.owner or s.number > w.number
    -- a job that waits for its next attempt may be edited
    or s.number < w.number and j.status = 'succeeded' and s.attempt_no = j.attempt_count;

-- name: secret_shown
-- A log, the history or a table has a secret in plain form.
-- work of chaos.secret: pg_temp.secrets
select t.place, 'has a secret in plain form, ' || count(*) || ' times'
from pg_temp.traces t where t.kind = 'secret' group by t.place;

-- name: sealed_with_retired_key
-- A payload is sealed with a data key that a rotation has retired.
-- work of chaos.secret: fairlead.job_records where payload -> 'token' ? '$sealed'
select j.id, 'is sealed with the data key ' || k.id || ', which was retired at ' || k.retired_at
from fairlead.tenant_keys k
join fairlead.job_records j on j.tenant_id = k.tenant_id
    and strpos(j.payload::text, 'sealed:1:' || replace(k.id::text, '-', '') || ':') > 0
where k.retired_at is not null;
