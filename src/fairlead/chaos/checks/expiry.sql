-- name: started_after_expiry
-- A job started for the first time after it had to.
-- work: pg_temp.lives where expires_in is not null and started is not null
select l.id, 'was claimed at ' || l.started || ', and its enqueue was acknowledged at ' || a.answered || '; it was due after '
    || l.delay || ' and had to start within ' || l.expires_in
from pg_temp.lives l join pg_temp.asked a on a.answered_job = l.id and a.outcome = 'ok' and not a.is_duplicate
where l.started > a.answered + l.delay + l.expires_in + make_interval(secs => %(tolerance)s)
    -- a retry by hand has no expiry
    and not exists (select from pg_temp.retries r where r.job_id = l.id);

-- name: expired_early
-- A job was canceled as expired before its time was over, although it had started, or without an expiry.
-- work: fairlead.job_records where error ->> 'type' = 'expired'
select j.id, 'is expired since ' || j.finished_at || coalesce('; it was asked for at ' || l.began || ', due after ' || l.delay
    || ', and had ' || l.expires_in, '; no call gave it an expiry') || coalesce('; it started at ' || l.started, '')
from fairlead.job_records j left join pg_temp.lives l on l.id = j.id
where j.error ->> 'type' = 'expired' and (
    l.expires_in is null or l.started < j.finished_at
    or j.finished_at < l.began + l.delay + l.expires_in - make_interval(secs => %(tolerance)s));
