-- The effective quota: the tenant's own, else that of the caller's settings, else the library's default. Null: no limit.
create or replace function fairlead.quota_of(own jsonb, settings jsonb, quota text) returns bigint
language sql immutable parallel safe as $$
    select nullif(coalesce((own ->> quota)::bigint, (settings ->> quota)::bigint, case quota
        when 'queued_jobs' then 1000000
        when 'run_jobs' then 100000
        when 'stored_bytes' then 107374182400 end), 0)
$$;
