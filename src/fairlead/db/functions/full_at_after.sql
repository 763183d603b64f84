-- When a bucket is full again after so many tokens were taken at a moment. Rounded up, so that no rate is exceeded.
create or replace function fairlead.full_at_after(
    full_at timestamptz, rate jsonb, tokens double precision, moment timestamptz
) returns timestamptz language sql immutable parallel safe as $$
    select greatest(full_at, moment) + make_interval(secs => ceil(
        tokens * (rate ->> 'per_seconds')::float8 * 1000000 / (rate ->> 'limit')::float8) / 1000000)
$$;
grant execute on function fairlead.full_at_after to fairlead_tenant;
