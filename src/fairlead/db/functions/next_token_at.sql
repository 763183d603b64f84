-- When a bucket has the wanted tokens, if nothing takes one until then. Rounded up, so that it has them at that time.
create or replace function fairlead.next_token_at(
    tokens double precision, counted_at timestamptz, rate jsonb, wanted double precision
) returns timestamptz language sql immutable parallel safe as $$
    select counted_at + make_interval(secs => least(3e9, ceil(
        greatest(0, least(1e12, wanted - tokens)) * (rate ->> 'per_seconds')::float8 * 1000000 / (rate ->> 'limit')::float8) / 1000000))
$$;
grant execute on function fairlead.next_token_at to fairlead_tenant;
